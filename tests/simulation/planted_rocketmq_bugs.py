"""Bugs that are planted in what RocketMQ clients rely on, to see that the simulation catches each. Several of them were
real, and found by it."""

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
    """Readers see what is appended before it is synced."""
    written = CommitStore.pass_written

    def pass_written(self: Any, number: int, dirty: Any) -> None:
        written(self, number, dirty)
        for queue, end in self._not_yet_durable[-1]:
            queue.durable_end = end
        self.log.durable_end = self.log.end

    patch.setattr(CommitStore, "pass_written", pass_written)


def queues_not_undone(patch: pytest.MonkeyPatch) -> None:
    """A queue keeps the places of a refused pass."""
    patch.setattr(ConsumeQueue, "roll_back_to", lambda self, end: None)


def tail_not_cut(patch: pytest.MonkeyPatch) -> None:
    """What a crash has torn stays behind the end."""
    patch.setattr(recovery._Scan, "cut_tail", lambda self: None)


def refused_checkpoint_forgets_queues(patch: pytest.MonkeyPatch) -> None:
    """The next checkpoint does not speak of the queues of one that was refused."""
    saved = CommitStore._saved
    patch.setattr(CommitStore, "_saved", lambda self, ticket, point, queues: saved(self, ticket, point, []))


def names_of_a_killed_process_not_synced(patch: pytest.MonkeyPatch) -> None:
    """A file that a process made right before it was killed may lose its name."""
    mark_running = CommitStore._mark_running

    def mark(self: Any) -> None:
        folder, self.log.folder = self.log.folder, "store"
        mark_running(self)
        self.log.folder = folder

    patch.setattr(CommitStore, "_mark_running", mark)


def room_not_made_for_batches(patch: pytest.MonkeyPatch) -> None:
    """What belongs together is refused in the middle."""
    patch.setattr(CommitLog, "ensure_room", lambda self, size: None)


def new_topics_not_waited_for(patch: pytest.MonkeyPatch) -> None:
    """Messages are acknowledged in a topic that may be refused."""
    patch.setattr(send, "_send_later", lambda context, command, topic: None)


def delays_delivered_again(patch: pytest.MonkeyPatch) -> None:
    """After a crash nobody looks whether a message has come already."""
    patch.setattr(RestartScan, "was_delivered", lambda self, progress, unit, properties: False)


def equal_delays_delivered_once(patch: pytest.MonkeyPatch) -> None:
    """Of a message that waits several times only one comes after a crash."""
    patch.setattr(ScheduleProgress, "is_handled", lambda self, offset: False)


def delays_come_early(patch: pytest.MonkeyPatch) -> None:
    """A message that waits by its level comes a little too soon."""
    init = DelayScheduler.__init__

    def hurried(
        self: Any, commit_log: CommitLogApi, timeline: Any, identity: Any, levels_ms: Any, limit_ms: int
    ) -> None:
        init(self, commit_log, timeline, identity, [level_ms - 400 for level_ms in levels_ms], limit_ms)

    patch.setattr(DelayScheduler, "__init__", hurried)


def rollbacks_not_heard(patch: pytest.MonkeyPatch) -> None:
    """A half that its producer takes back is delivered."""
    decide = Transactions.decide

    def commit(self: Any, group: str, offset: int, position: int, is_commit: bool, is_answer: bool) -> Any:
        return decide(self, group, offset, position, True, is_answer)

    patch.setattr(Transactions, "decide", commit)


def halves_not_asked_about(patch: pytest.MonkeyPatch) -> None:
    """What nobody decides waits for ever."""
    patch.setattr(TransactionChecker, "_start_round", lambda self: None)


ROCKETMQ_BUGS: dict[str, Plant] = {
    "replies are released when written": replies_released_at_written,
    "what is written is shown as durable": written_taken_for_durable,
    "queues are not undone": queues_not_undone,
    "the tail is not cut": tail_not_cut,
    "a refused checkpoint forgets its queues": refused_checkpoint_forgets_queues,
    "names that a killed process left are not synced": names_of_a_killed_process_not_synced,
    "room is not made for what belongs together": room_not_made_for_batches,
    "new topics are not waited for": new_topics_not_waited_for,
    "delays are delivered again": delays_delivered_again,
    "equal delays are delivered once": equal_delays_delivered_once,
    "delays come early": delays_come_early,
    "rollbacks are not heard": rollbacks_not_heard,
    "halves are not asked about": halves_not_asked_about,
}

LATE_SEEDS = {
    "names that a killed process left are not synced": 530,
    "room is not made for what belongs together": 1900,
}
"""From which seed on to look for a bug that needs much to come together, so that the search is short."""
