"""The replies that one connection is still owed, each lane in its order. Knows when each may leave, never what it says
or how it is sent."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial

from trimq.protocols.contract import Reply

log = logging.getLogger(__name__)


class PendingReplies:
    """`held_limit`: how many may wait for something to happen. One more is turned away."""

    __slots__ = ("_held", "_held_limit", "_lanes", "_unordered", "count")

    def __init__(self, held_limit: int = 2**31) -> None:
        self._held_limit = held_limit
        self._lanes: dict[object, deque[Reply]] = {}
        self._unordered: list[Reply] = []
        self._held: dict[Reply, None] = {}
        self.count = 0

    def __len__(self) -> int:
        return self.count

    @property
    def pending(self) -> int:
        """How many requests are being worked on: those that wait for something to happen are not."""
        return self.count - len(self._held)

    def is_first(self, reply: Reply) -> bool:
        """Whether nothing has to leave before it."""
        return reply.lane is None or reply.lane not in self._lanes

    def add(self, reply: Reply, wake: Callable[[], None] | None = None) -> None:
        """`wake` is called when it is resolved."""
        wake = wake or _nothing
        self.count += reply.count
        if reply.reject_over_limit is not None and reply.is_held:
            self._hold(reply, wake)
            return
        reply.watch(wake)
        if reply.lane is None:
            self._unordered.append(reply)
        elif reply.lane in self._lanes:
            self._lanes[reply.lane].append(reply)
        else:
            self._lanes[reply.lane] = deque((reply,))

    def _hold(self, reply: Reply, wake: Callable[[], None]) -> None:
        self._held[reply] = None
        reply.watch(partial(self._happened, reply, wake))
        if len(self._held) > self._held_limit and reply.reject_over_limit is not None:
            _call(reply.reject_over_limit)

    def _happened(self, reply: Reply, wake: Callable[[], None]) -> None:
        if reply in self._held:
            del self._held[reply]
            self._unordered.append(reply)
        reply.watch(wake)
        wake()

    def take_ready(self, written: int, durable: int) -> list[Reply]:
        """Those that may leave now, in the order in which they must."""
        ready: list[Reply] = []
        if self._lanes:
            for key, lane in list(self._lanes.items()):
                while lane and lane[0].is_ready(written, durable):
                    ready.append(lane.popleft())
                if not lane:
                    del self._lanes[key]
        if self._unordered:
            waiting: list[Reply] = []
            for reply in self._unordered:
                (ready if reply.is_ready(written, durable) else waiting).append(reply)
            self._unordered = waiting
        for reply in ready:
            self.count -= reply.count
        return ready

    def resolve_now(self) -> None:
        """Nobody waits for events any more: what can be answered without one is; the rest is given up, and with it
        whatever would have to leave after it."""
        for reply in [reply for reply in self._all() if reply.waits_for_event]:
            if reply.resolve_now is not None and reply.is_open:
                _call(reply.resolve_now)
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
        """The connection is gone."""
        given_up = list(self._all())
        self._lanes.clear()
        self._unordered = []
        self._held.clear()
        self._abandon(given_up)

    def _all(self) -> Iterator[Reply]:
        for lane in self._lanes.values():
            yield from lane
        yield from self._unordered
        yield from self._held

    def _abandon(self, replies: list[Reply] | deque[Reply]) -> None:
        for reply in replies:
            self.count -= reply.count
            reply.watch(_nothing)
            abandon, reply.abandon = reply.abandon, None
            if abandon is not None:
                _call(abandon)


def _nothing() -> None: ...


def _call(callback: Callable[[], None]) -> None:
    try:
        callback()
    except Exception:
        log.exception("a reply could not be ended")  # the others must be ended all the same
