"""Replies of a connection that are not sent yet: holds each until its pass is durable or written, and releases the
replies of a lane in order. Knows neither their content nor the transport."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator
from typing import Protocol

from trimq.protocols.contract import NEVER, DeferredReply, Reply

log = logging.getLogger(__name__)

SendReady = Callable[[list[Reply], bool], None]


class PassWaiter(Protocol):
    def pass_reached(self) -> None:
        """Called when a pass that it waits for is durable, or written if it waits for that only."""


# Dicts, not sets: the waiters of a pass are called in the order in which they began to wait, on every run.
_Waiters = dict[PassWaiter, None]


class PassProgress:
    """Numbers of the last written and the last durable pass of the broker, and the connections that wait for one."""

    __slots__ = ("_until_durable", "_until_written", "durable", "written")

    def __init__(self) -> None:
        self.written = 0
        self.durable = 0
        self._until_written: dict[int, _Waiters] = {}
        self._until_durable: dict[int, _Waiters] = {}

    def __len__(self) -> int:
        """Number of waits: one for each pass of each waiter."""
        return sum(map(len, (*self._until_written.values(), *self._until_durable.values())))

    def wait(self, waiter: PassWaiter, number: int, needs_sync: bool = True) -> None:
        """Calls `waiter.pass_reached` once a pass that is not reached yet is durable, or written if `needs_sync` is
        false. One waiter is called once, however often it asks."""
        waits = self._until_durable if needs_sync else self._until_written
        waiters = waits.get(number)
        if waiters is None:
            waits[number] = {waiter: None}
        else:
            waiters[waiter] = None

    def advance(self, written: int, durable: int) -> None:
        reached: _Waiters = {}
        if written > self.written:
            self.written = written
            if self._until_written:
                reached = _take_reached(self._until_written, written)
        if durable > self.durable:
            self.durable = durable
            if self._until_durable:
                reached |= _take_reached(self._until_durable, durable)
        for waiter in reached:
            waiter.pass_reached()


def _take_reached(waits: dict[int, _Waiters], number: int) -> _Waiters:
    reached: _Waiters = {}
    for each in [each for each in waits if each <= number]:
        reached |= waits.pop(each)
    return reached


class PendingReplies:
    """The pending replies of one connection. Calls `send_ready` with the replies that may be sent now, in order, and
    whether a pass made them ready: a pass calls each connection once, so no more replies will follow that could be sent
    in the same write. `held_limit`: maximum number of held deferred replies; one more is rejected."""

    __slots__ = ("_awaited", "_held", "_held_limit", "_lanes", "_progress", "_send_ready", "_unordered", "count")

    def __init__(self, progress: PassProgress, send_ready: SendReady, held_limit: int = 2**31) -> None:
        self._progress = progress
        self._send_ready = send_ready
        self._held_limit = held_limit
        self._lanes: dict[object, deque[Reply]] = {}
        self._unordered: list[Reply] = []
        # Deferred replies without a lane, so that no other reply waits for them: not checked until they are resolved.
        self._held: dict[Reply, None] = {}
        self._awaited = 0
        self.count = 0
        """Number of requests that are not answered yet."""

    def __len__(self) -> int:
        return self.count

    @property
    def pending(self) -> int:
        """Number of requests that are not answered yet, without those that are held until an event."""
        return self.count - len(self._held)

    def add(self, reply: Reply) -> bool:
        """Keeps the reply until it may be sent. Returns False if it is ready: the caller sends it now."""
        progress, number, lane = self._progress, reply.number, reply.lane
        is_ready = number <= (progress.durable if reply.needs_sync else progress.written)
        if is_ready and (lane is None or lane not in self._lanes):
            return False
        self.count += reply.count
        reply.watcher = self
        if not is_ready:
            if number != NEVER:
                self._wait_for_pass(reply)
            elif isinstance(reply, DeferredReply) and reply.on_reject_over_limit is not None and lane is None:
                self._hold(reply, reply.on_reject_over_limit)
                return True
        if lane is None:
            self._unordered.append(reply)
        elif (others := self._lanes.get(lane)) is not None:
            others.append(reply)
        else:
            self._lanes[lane] = deque((reply,))
        return True

    def _wait_for_pass(self, reply: Reply) -> None:
        if reply.number == self._awaited and reply.needs_sync:
            return  # most replies wait for the same pass as the one before
        self._progress.wait(self, reply.number, reply.needs_sync)
        if reply.needs_sync:
            self._awaited = reply.number

    def _hold(self, reply: Reply, reject: Callable[[], None]) -> None:
        self._held[reply] = None
        if len(self._held) > self._held_limit:
            _call(reject)

    def reply_resolved(self, reply: Reply) -> None:
        """Called when a deferred reply is ready or waits for a pass now, or a reply that waited for a pass is ready
        early."""
        if reply in self._held:
            del self._held[reply]
            self._unordered.append(reply)
        if not reply.is_ready(self._progress.written, self._progress.durable):
            self._wait_for_pass(reply)
        self._release(is_by_pass=False)

    def pass_reached(self) -> None:
        self._release(is_by_pass=True)

    def _release(self, is_by_pass: bool) -> None:
        written, durable = self._progress.written, self._progress.durable
        ready: list[Reply] = []
        if self._lanes:
            for key, lane in list(self._lanes.items()):
                while lane and lane[0].number <= (durable if lane[0].needs_sync else written):
                    ready.append(lane.popleft())
                if not lane:
                    del self._lanes[key]
        if self._unordered:
            waiting: list[Reply] = []
            for reply in self._unordered:
                is_ready = reply.number <= (durable if reply.needs_sync else written)
                (ready if is_ready else waiting).append(reply)
            self._unordered = waiting
        if ready:
            for reply in ready:
                self.count -= reply.count
            self._send_ready(ready, is_by_pass)

    def resolve_now(self) -> None:
        """Ends all waits for events: asks deferred replies to resolve now, and abandons those that do not, together
        with the replies behind them in their lanes."""
        for reply in [reply for reply in self._all() if reply.waits_for_event]:
            if isinstance(reply, DeferredReply) and reply.on_resolve_now is not None and reply.is_open:
                _call(reply.on_resolve_now)
        for key, lane in list(self._lanes.items()):
            kept: deque[Reply] = deque()
            while lane and not lane[0].waits_for_event:
                kept.append(lane.popleft())
            self._abandon(lane)
            if kept:
                self._lanes[key] = kept
            else:
                del self._lanes[key]
        given_up = [reply for reply in self._unordered if reply.waits_for_event] + list(self._held)
        self._unordered = [reply for reply in self._unordered if not reply.waits_for_event]
        self._held.clear()
        self._abandon(given_up)

    def abandon_all(self) -> None:
        """Abandons all replies: none of them will be sent."""
        given_up = list(self._all())
        self._lanes.clear()
        self._unordered = []
        self._held.clear()
        self._abandon(given_up)

    def end(self) -> None:
        """Abandons all replies of a closed connection. `PassProgress` may still refer to this object, and must not keep
        the connection alive."""
        self.abandon_all()
        self._send_ready = _send_nothing

    def _all(self) -> Iterator[Reply]:
        for lane in self._lanes.values():
            yield from lane
        yield from self._unordered
        yield from self._held

    def _abandon(self, replies: list[Reply] | deque[Reply]) -> None:
        for reply in replies:
            self.count -= reply.count
            reply.watcher = None
            if isinstance(reply, DeferredReply):
                abandon, reply.on_abandon = reply.on_abandon, None
                if abandon is not None:
                    _call(abandon)


def _send_nothing(ready: list[Reply], is_by_pass: bool) -> None: ...


def _call(callback: Callable[[], None]) -> None:
    try:
        callback()
    except Exception:
        log.exception("callback of a pending reply failed; continuing with the other replies")
