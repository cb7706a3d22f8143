"""Passes: all appends of one pass of the event loop are written together, numbered, and acknowledged together once the
flusher has made them durable. Knows the writers, never the data."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from trimq.errors import Refusal, WriteFailed
from trimq.storage.group_commit.flusher import Dirty, Flusher, LoopTurns

log = logging.getLogger(__name__)


class Ticket:
    """Result of an append until its pass is durable. `refusal` is set if the pass could not be written."""

    __slots__ = ("number", "refusal")

    def __init__(self, number: int) -> None:
        self.number = number
        self.refusal: Refusal | None = None


class JointTicket(Ticket):
    """Combines several tickets; refused if any of them is."""

    __slots__ = ("_tickets",)

    def __init__(self, tickets: Sequence[Ticket]) -> None:
        self._tickets = tickets
        super().__init__(max(ticket.number for ticket in tickets))

    @property
    def refusal(self) -> Refusal | None:
        return next((ticket.refusal for ticket in self._tickets if ticket.refusal is not None), None)

    @refusal.setter
    def refusal(self, refusal: Refusal | None) -> None:
        """Does nothing: the value derives from the combined tickets."""


_new_ticket = object.__new__  # takes half the time of the constructor; one per pass and journal


class PassWriter(Protocol):
    """Takes part in passes: collects bytes during a pass, writes them at its end."""

    def write_pass(self, dirty: Dirty) -> None:
        """Writes the collected bytes and adds the files to sync to `dirty`. After an OSError none of these bytes
        count."""

    def undo_pass(self, refusal: Refusal, dirty: Dirty) -> None:
        """Restores ends, state and files (which become dirty) to the beginning of the pass. Sets `refusal` on the
        ticket."""

    def mark_pass_durable(self, number: int) -> None:
        """Called when this pass and all before it are durable."""


class OpenPass(Protocol):
    """The part of `Passes` that a journal needs."""

    @property
    def written(self) -> int:
        """Number of the last pass whose bytes are in the files."""

    def join(self, writer: PassWriter, is_first: bool = False) -> Ticket:
        """Registers `writer` for the current pass; see `Passes.join`."""


class Passes:
    """The numbered passes of one broker."""

    __slots__ = (
        "_call_soon",
        "_failed",
        "_flusher",
        "_is_broken",
        "_is_ending",
        "_joined",
        "_listeners",
        "_not_yet_durable",
        "_on_durable",
        "_on_synced",
        "current",
        "durable",
        "written",
    )

    def __init__(
        self, call_soon: Callable[[Callable[[], None]], object], failed: Callable[[BaseException], None]
    ) -> None:
        self._call_soon = call_soon
        self._failed = failed
        self._flusher: Flusher | None = None
        self._joined: list[PassWriter] = []
        self._not_yet_durable: deque[tuple[int, list[PassWriter]]] = deque()
        self._listeners: list[Callable[[], None]] = []
        self._on_durable: deque[tuple[Ticket, Callable[[Ticket], object]]] = deque()
        self._on_synced: deque[tuple[Ticket, Callable[[Ticket], object]]] = deque()
        self._is_broken = False
        self._is_ending = False
        """The current pass ends with this turn of the loop."""
        self.current = 1
        self.written = 0
        self.durable = 0

    def start(self, flusher: Flusher) -> None:
        self._flusher = flusher

    def on_progress(self, listener: Callable[[], None]) -> None:
        """Calls `listener` whenever `written` or `durable` has moved, after all writers and call-backs of these passes.
        For the owner of the pending replies, which waits for numbers of passes and not for tickets; others use
        `on_durable`."""
        self._listeners.append(listener)

    def join(self, writer: PassWriter, is_first: bool = False) -> Ticket:
        """Registers `writer` for this pass; each writer calls it once. The writer may share the ticket. `is_first`:
        written before the others, because they depend on its success."""
        if not self._is_ending:
            self._is_ending = True
            self._call_soon(self.finish)
        if is_first:
            self._joined.insert(0, writer)
        else:
            self._joined.append(writer)
        ticket = _new_ticket(Ticket)
        ticket.number, ticket.refusal = self.current, None
        return ticket

    def join_later(self, writer: PassWriter, is_first: bool = False) -> Ticket:
        """Like `join`, for a writer that may wait: the pass ends with the turn in which another writer joins it, or
        `end_soon` is called."""
        is_ending, self._is_ending = self._is_ending, True
        ticket = self.join(writer, is_first)
        self._is_ending = is_ending
        return ticket

    def end_soon(self) -> None:
        """Ends the current pass with this turn of the loop, if anyone has joined it."""
        if self._joined and not self._is_ending:
            self._is_ending = True
            self._call_soon(self.finish)

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Calls back at the end of this turn of the loop, whether or not anything is durable. For work that is done
        once for all events of a turn, and for long work that is done in steps."""
        self._call_soon(callback)

    @property
    def turns(self) -> LoopTurns:
        return LoopTurns(self._call_soon, lambda: bool(self._joined))

    def on_durable(self, ticket: Ticket, callback: Callable[[Ticket], object]) -> None:
        """Calls back once the ticket's pass is durable, or refused: before any reply that waits for it is sent. The
        usual way to act on a pass; an exception stops the broker. To answer a client use `Reply.when_durable`."""
        self._on_durable.append((ticket, callback))

    def on_durable_guarded(self, ticket: Ticket, callback: Callable[[Ticket], object]) -> None:
        """As `on_durable`, but an exception is logged and does not stop the broker: for callers above storage that
        start something new. Not for state that must agree with the files."""
        self._on_durable.append((ticket, partial(_run_guarded, callback)))

    def on_synced(self, ticket: Ticket, callback: Callable[[Ticket], object]) -> None:
        """Calls back once the ticket's pass survives a power cut, or is refused. With flush = async this is later than
        `on_durable`, which then acknowledges from the page cache: for files that may be removed or replaced only when a
        restart no longer needs them."""
        self._on_synced.append((ticket, callback))

    @property
    def on_disk(self) -> int:
        """Number of the last pass that survives a power cut, which may be behind the last acknowledged one."""
        return self.durable if self._flusher is None else self._flusher.on_disk

    @property
    def is_all_on_disk(self) -> bool:
        """Whether all acknowledged data survives a power cut: always, unless passes are acknowledged from the page
        cache."""
        return self.on_disk >= self.durable

    @property
    def is_idle(self) -> bool:
        """True if nothing is unwritten and no pass waits to become durable."""
        return not self._joined and not self._not_yet_durable and (self._flusher is None or self._flusher.is_idle)

    def finish(self) -> None:
        """Ends the pass: writes all collected data, then lets the flusher make it durable."""
        self._is_ending = False
        if not self._joined or self._is_broken:
            return
        assert self._flusher is not None, "a pass ends after the broker has started"
        number, writers = self.current, self._joined
        self._joined = []
        self.current += 1
        dirty = self._flusher.dirty
        dirty.should_preallocate = len(writers) <= self._flusher.preallocates_up_to_writers
        kept: list[PassWriter] | None = writers
        for writer in writers:
            try:
                writer.write_pass(dirty)
            except OSError as error:
                kept = self._undo(writer, kept, error, dirty)
        if kept is None:
            return
        self.written = number
        self._not_yet_durable.append((number, kept))
        self._flusher.flush(number)
        if self.durable < number:
            for listener in self._listeners:
                listener()

    def _undo(
        self, writer: PassWriter, kept: list[PassWriter] | None, error: OSError, dirty: Dirty
    ) -> list[PassWriter] | None:
        """Returns the writers of `kept` whose bytes still count, or None if a write could be neither completed nor
        undone."""
        log.warning("write failed (%s); undoing this pass", error)
        try:
            writer.undo_pass(WriteFailed(str(error)), dirty)
        except OSError as worse:
            # Bytes of a refused request stay in the file and a restart would read them, so nothing may be acknowledged
            # now.
            self.stop_acknowledging(worse)
            return None
        return None if kept is None else [other for other in kept if other is not writer]

    def stop_acknowledging(self, error: BaseException) -> None:
        """Stops acknowledging: only a restart can repair the files."""
        self._is_broken = True
        self._failed(error)

    def mark_durable(self, number: int) -> None:
        """Called by the flusher: passes up to `number` are durable."""
        if self._is_broken:
            return
        if number > self.durable:
            self.durable = number
        not_yet_durable = self._not_yet_durable
        while not_yet_durable and not_yet_durable[0][0] <= number:
            durable_pass, writers = not_yet_durable.popleft()
            for writer in writers:
                writer.mark_pass_durable(durable_pass)
        if self._on_durable:
            _call_back(self._on_durable, number)
        if self._on_synced and self._flusher is not None:
            _call_back(self._on_synced, self._flusher.on_disk)
        for listener in self._listeners:
            listener()


def _run_guarded(callback: Callable[[Ticket], object], ticket: Ticket) -> None:
    try:
        callback(ticket)
    except Exception:
        log.exception("callback after a durable pass failed; the pass itself is durable")


def _call_back(waiting: deque[tuple[Ticket, Callable[[Ticket], object]]], number: int) -> None:
    while waiting and waiting[0][0].number <= number:
        ticket, callback = waiting.popleft()
        callback(ticket)
