"""Planted bugs in the RocketMQ layers that the simulation must find. Several of them were real, and found by it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from planted_bugs import replies_released_at_written

from trimq.core.api.commit_log import CommitLogApi
from trimq.protocols.rocketmq.handlers import send
from trimq.protocols.rocketmq.schedule.progress import ScheduleProgress
from trimq.protocols.rocketmq.schedule.restart_scan import RestartScan
from trimq.protocols.rocketmq.schedule.scheduler import DelayScheduler
from trimq.protocols.rocketmq.transactions.check_back import TransactionChecker
from trimq.protocols.rocketmq.transactions.transactions import Transactions
from trimq.storage.commit_log import recovery
from trimq.storage.commit_log.consume_queue import ConsumeQueue
from trimq.storage.commit_log.log import CommitLog
from trimq.storage.commit_log.store import CommitStore

Plant = Callable[[pytest.MonkeyPatch], None]


def written_taken_for_durable(patch: pytest.MonkeyPatch) -> None:
    """Readers see appended messages before they are synced."""
    written = CommitStore.pass_written

    def pass_written(self: Any, number: int, dirty: Any) -> None:
        written(self, number, dirty)
        for queue, end in self._not_yet_durable[-1]:
            queue.durable_end = end
        self.log.durable_end = self.log.end

    patch.setattr(CommitStore, "pass_written", pass_written)


def queues_not_undone(patch: pytest.MonkeyPatch) -> None:
    """A queue keeps the offsets of a refused pass."""
    patch.setattr(ConsumeQueue, "roll_back_to", lambda self, end: None)


def tail_not_cut(patch: pytest.MonkeyPatch) -> None:
    """A torn tail stays after the end."""
    patch.setattr(recovery._Scan, "cut_tail", lambda self: None)


def queues_of_a_refused_checkpoint_omitted(patch: pytest.MonkeyPatch) -> None:
    """The next checkpoint omits the queues of a refused one."""
    saved = CommitStore._saved
    patch.setattr(CommitStore, "_saved", lambda self, ticket, point, queues: saved(self, ticket, point, []))


def names_of_a_killed_process_not_synced(patch: pytest.MonkeyPatch) -> None:
    """A file created right before its process was killed may lose its name."""
    mark_running = CommitStore._mark_running

    def mark(self: Any) -> None:
        folder, self.log.folder = self.log.folder, "store"
        mark_running(self)
        self.log.folder = folder

    patch.setattr(CommitStore, "_mark_running", mark)


def no_new_file_for_batches(patch: pytest.MonkeyPatch) -> None:
    """A batch is refused after some of its messages."""
    patch.setattr(CommitLog, "ensure_room", lambda self, size: None)


def new_topics_not_awaited(patch: pytest.MonkeyPatch) -> None:
    """Messages are acknowledged in a topic that may be refused."""
    patch.setattr(send, "_send_later", lambda context, command, topic: None)


def delays_delivered_again(patch: pytest.MonkeyPatch) -> None:
    """After a crash the broker does not check whether a delayed message was already delivered."""
    patch.setattr(RestartScan, "was_delivered", lambda self, progress, unit, properties: False)


def equal_delays_delivered_once(patch: pytest.MonkeyPatch) -> None:
    """Of a message that was sent several times with the same delay, only one is delivered after a crash."""
    patch.setattr(ScheduleProgress, "is_handled", lambda self, offset: False)


def delays_end_early(patch: pytest.MonkeyPatch) -> None:
    """A message delayed by level is delivered a little too early."""
    init = DelayScheduler.__init__

    def hurried(
        self: Any, commit_log: CommitLogApi, timeline: Any, identity: Any, levels_ms: Any, limit_ms: int
    ) -> None:
        init(self, commit_log, timeline, identity, [level_ms - 400 for level_ms in levels_ms], limit_ms)

    patch.setattr(DelayScheduler, "__init__", hurried)


def rollbacks_ignored(patch: pytest.MonkeyPatch) -> None:
    """A half message that was rolled back is delivered."""
    decide = Transactions.decide

    def commit(self: Any, caller: Any, group: str, offset: int, position: int, is_commit: bool, is_answer: bool) -> Any:
        return decide(self, caller, group, offset, position, True, is_answer)

    patch.setattr(Transactions, "decide", commit)


def half_messages_not_checked(patch: pytest.MonkeyPatch) -> None:
    """Undecided half messages wait for ever."""
    patch.setattr(TransactionChecker, "_start_round", lambda self: None)


ROCKETMQ_BUGS: dict[str, Plant] = {
    "replies are released when written": replies_released_at_written,
    "written messages are shown as durable": written_taken_for_durable,
    "queues are not undone": queues_not_undone,
    "the tail is not cut": tail_not_cut,
    "queues of a refused checkpoint are omitted": queues_of_a_refused_checkpoint_omitted,
    "file names of a killed process are not synced": names_of_a_killed_process_not_synced,
    "no new file is begun for a whole batch": no_new_file_for_batches,
    "new topics are not awaited": new_topics_not_awaited,
    "delayed messages are delivered again": delays_delivered_again,
    "equal delayed messages are delivered once": equal_delays_delivered_once,
    "delays end early": delays_end_early,
    "rollbacks are ignored": rollbacks_ignored,
    "half messages are not checked back": half_messages_not_checked,
}

LATE_SEEDS = {
    "file names of a killed process are not synced": 530,
    "no new file is begun for a whole batch": 1900,
}
"""First seed for bugs that need rare combinations, so that the search is short."""
