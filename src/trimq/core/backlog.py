"""What waits in one queue, or in one priority of it: a cursor over its log, and what came back in the order of its
offsets. Knows the log; not who gets the messages."""

from __future__ import annotations

import heapq
import logging
from typing import NamedTuple

from trimq.errors import DamagedSegment
from trimq.formats.content import NEVER, Sealed, Stored
from trimq.storage.passes import Ticket
from trimq.storage.queue_log import QueueLog

log = logging.getLogger(__name__)


class Tries(NamedTuple):
    """How often a message that came back was taken, and how often that counted as a failure."""

    taken: int = 0
    failed: int = 0


_NEVER_TRIED = Tries()


class Backlog:
    """A message is ready, out, or settled. `ready` counts what was appended too and is not readable yet."""

    def __init__(self, log: QueueLog, level: int) -> None:
        self.log = log
        self.level = level
        self.cursor = 0
        self.ready = log.live
        self.out = 0
        self.ready_bytes = 0
        self.counts_bytes = False
        self.leaving: set[int] = set()  # out, and settled when their next place has them
        self.seen_end = 0  # what lies behind it has become readable since consumers were last served
        self._returned: list[int] = []  # a heap of offsets before the cursor
        self._tries: dict[int, Tries] = {}

    def append(self, sealed: Sealed, expires_ms: int, flags: int) -> Ticket:
        ticket = self.log.append(sealed, expires_ms, flags)
        self.ready += 1
        if self.counts_bytes:
            self.ready_bytes += len(sealed.content.body)
        return ticket

    def recount(self, out_bytes: int) -> None:
        """A pass was undone: what it appended is not there. All that was out before still is."""
        self.ready = self.log.live - self.out
        if self.counts_bytes:
            self.count_bytes(out_bytes)

    def count_bytes(self, out_bytes: int) -> None:
        """From now on, know how many bytes of bodies are ready; those that are out have so many. May read the log."""
        self.counts_bytes = True
        self.ready_bytes = self.log.live_bytes() - out_bytes

    # -- out and back

    def peek(self) -> Stored | None:
        """The next one that is ready and readable, which stays."""
        while (offset := self._next()) is not None:
            try:
                return self.log.peek(offset)
            except DamagedSegment as damage:
                self._skip(offset, damage)
        return None

    def _next(self) -> int | None:
        return self._returned[0] if self._returned else self.log.next_live(self.cursor)

    def _skip(self, offset: int, damage: DamagedSegment) -> None:
        """It is never served, and not settled either: whoever mends the file has it again after a restart."""
        log.error("a message of %s is left out: %s", self.log.folder, damage)
        self._go_past(offset)
        self.ready -= 1
        self.out += 1

    def _go_past(self, offset: int) -> None:
        if self._returned:
            heapq.heappop(self._returned)
        else:
            self.cursor = offset + 1

    def take(self) -> Stored | None:
        """The next one, which is out until it is settled or given back."""
        while (offset := self._next()) is not None:
            try:
                stored = self.log.take(offset)
            except DamagedSegment as damage:
                self._skip(offset, damage)
                continue
            self._go_past(offset)
            self.ready -= 1
            self.out += 1
            if self.counts_bytes:
                self.ready_bytes -= len(stored.content.body)
            return stored
        return None

    def tries(self, offset: int) -> Tries:
        return self._tries.get(offset, _NEVER_TRIED)

    def remembered_tries(self, offset: int) -> Tries:
        """As `tries`, and what was kept over a restart."""
        failed = self.log.attempts(offset)
        return self._tries.get(offset) or Tries(failed, failed)

    def give_back(self, stored: Stored, tries: Tries) -> None:
        """It goes to where it was."""
        self._tries[stored.offset] = tries
        heapq.heappush(self._returned, stored.offset)
        self.ready += 1
        self.out -= 1
        if self.counts_bytes:
            self.ready_bytes += len(stored.content.body)

    def settle(self, offset: int) -> None:
        """One that is out is done with."""
        self.log.settle(offset)
        self.out -= 1
        if self._tries:
            self._tries.pop(offset, None)

    def purge(self, out: set[int]) -> int:
        """All that are ready and readable are done with; `out` are those that are not ready."""
        purged = self.log.settle_all(0, self.log.readable_end, out)
        self._returned = []
        self._tries = {offset: tries for offset, tries in self._tries.items() if offset in out}
        self.cursor = self.log.readable_end
        self.ready -= purged
        return purged

    def head_expiry_ms(self) -> int:
        head = self.peek()
        return NEVER if head is None else head.expires_ms
