"""Compacts streams by key, one at a time and step by step, so that requests are served in between. Knows when a step
may run, never its content."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from trimq.clock import Timeline, Timer
from trimq.core.partitions.stream import Stream
from trimq.core.partitions.topics import Topics
from trimq.errors import Refusal
from trimq.offload import Offload
from trimq.storage.checkpoints.file_names import CorruptCompanion
from trimq.storage.checkpoints.log_checkpoints import Checkpoints
from trimq.storage.group_commit.passes import Passes, Ticket
from trimq.storage.guards.disk_space import DiskSpaceGuard
from trimq.storage.partition_log.compaction import (
    Compaction,
    CompactionLimits,
    plan_compaction,
    waits_for_compaction,
)
from trimq.storage.partition_log.compaction_swap import Step

log = logging.getLogger(__name__)


class _Round:
    """Compaction of one stream in progress."""

    __slots__ = ("compaction", "steps", "stream")

    def __init__(self, stream: Stream, compaction: Compaction) -> None:
        self.stream = stream
        self.compaction = compaction
        self.steps: Iterator[Step] = compaction.steps()


class Compactor:
    def __init__(
        self,
        topics: Topics,
        checkpoints: Checkpoints,
        passes: Passes,
        offload: Offload,
        guard: DiskSpaceGuard,
        timeline: Timeline,
        effort: CompactionLimits,
    ) -> None:
        self._topics = topics
        self._checkpoints = checkpoints
        self._passes = passes
        self._offload = offload
        self._guard = guard
        self._timeline = timeline
        self._effort = effort
        self._waiting: dict[Stream, None] = {}
        self._round: _Round | None = None
        self._timer: Timer | None = None

    def consider(self, stream: Stream) -> bool:
        """Schedules a compaction of the stream if there is enough to gain, and returns whether there is."""
        try:
            is_due = plan_compaction(stream.log, self._checkpoints, self._timeline.now_ms()) is not None
        except (Refusal, OSError) as error:
            log.warning("%s: cannot plan compaction (%s)", stream.log.folder, error)
            return False
        if is_due:
            self._waiting[stream] = None
            if self._round is None:
                self._begin_next()
        return is_due

    def may_become_due(self, stream: Stream) -> bool:
        """True if a compaction can become due without another append."""
        return waits_for_compaction(stream.log, self._checkpoints)

    def stop(self) -> None:
        """Leaves the files as they are: a restart continues from there."""
        self._waiting.clear()
        self._round = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _begin_next(self) -> None:
        self._round = None
        if self._waiting:
            stream = next(iter(self._waiting))
            del self._waiting[stream]
            compaction = Compaction(stream.log, self._checkpoints, self._timeline.now_ms(), self._effort)
            self._round = _Round(stream, compaction)
            self._schedule_step(self._round)

    def _schedule_step(self, round: _Round) -> None:
        """Schedules the next step after waiting requests, unless the round was abandoned meanwhile."""
        if round is self._round:
            self._timer = self._timeline.call_at(self._timeline.now_ms(), self._step)

    def _step(self) -> None:
        self._timer = None
        round = self._round
        if round is None:
            return
        try:
            # The folder of a deleted topic may belong to a new topic of the same name by now.
            step = self._next_step(round) if self._is_served(round.stream) else StopIteration
        except (Refusal, OSError, CorruptCompanion) as error:
            self._give_up(round, error)
            return
        if step is StopIteration:
            self._begin_next()
        else:
            self._await(round, step)

    def _next_step(self, round: _Round) -> Step | type[StopIteration]:
        if not round.compaction.must_finish:
            self._guard.check()
        return next(round.steps, StopIteration)

    def _is_served(self, stream: Stream) -> bool:
        try:
            return self._topics.by_id(stream.id.topic).stream(stream.id.number) is stream
        except Refusal:
            return False

    def _give_up(self, round: _Round, error: Exception) -> None:
        if round.compaction.must_finish:
            self._passes.stop_acknowledging(error)
            self.stop()
            return
        log.warning("%s: compaction failed, will be retried (%s)", round.stream.log.folder, error)
        self._begin_next()

    def _await(self, round: _Round, step: Step) -> None:
        if step is None:
            self._schedule_step(round)
        elif not isinstance(step, Ticket):
            self._offload(step, lambda _, error: self._work_done(round, error))
        else:
            self._passes.on_synced(step, lambda _: self._schedule_step(round))

    def _work_done(self, round: _Round, error: BaseException | None) -> None:
        if error is None:
            self._schedule_step(round)
        else:  # after a failed read or sync the state of the folder is unknown
            self._passes.stop_acknowledging(error)
            self.stop()
