"""Buffer pool of the commit log with flush = pooled: messages are acknowledged from memory, and committed to the page
cache when enough of them are collected or an interval has passed. Knows passes and sizes, never the data."""

from __future__ import annotations

from collections.abc import Callable

from trimq.clock import Timeline, Timer
from trimq.storage.group_commit.passes import Passes, PassWriter, Ticket

# Four pages, as commitCommitLogLeastPages of Apache RocketMQ.
COMMIT_BYTES = 4 * 4096


class CommitPool:
    """The broker's passes as the commit log joins them: a pass that nobody else has joined stays open over several
    turns of the loop. All layouts still share one sequence of passes, so a crash leaves them consistent."""

    def __init__(self, passes: Passes, timeline: Timeline, interval_ms: int) -> None:
        self._passes = passes
        self._timeline = timeline
        self._interval_ms = interval_ms
        self._timer: Timer | None = None

    @property
    def written(self) -> int:
        """Number of the last pass in the page cache."""
        return self._passes.written

    def join(self, writer: PassWriter, is_first: bool = False) -> Ticket:
        """Like `Passes.join`; the pass ends after the interval at the latest."""
        if self._timer is None:
            self._timer = self._timeline.call_at(self._timeline.now_ms() + self._interval_ms, self._commit)
        return self._passes.join_later(writer, is_first)

    def call_after_turn(self, end_turn: Callable[[], int]) -> None:
        """Calls back at the end of this turn of the loop; `end_turn` returns how many bytes are collected. Commits them
        if they are enough."""

        def end() -> None:
            if end_turn() >= COMMIT_BYTES:
                self._passes.finish()

        self._passes.call_soon(end)

    def _commit(self) -> None:
        self._timer = None
        self._passes.end_soon()
