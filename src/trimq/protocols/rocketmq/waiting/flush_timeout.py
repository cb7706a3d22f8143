"""Sends whose messages are not on disk in time: their producers are told so, and the messages stay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trimq.clock import Timeline, Timer
from trimq.protocols.contract import Build, Reply
from trimq.protocols.rocketmq.wire.replies import PendingWrite

OnDurable = Callable[[Any, Callable[[Any], object]], None]


class _PendingPass:
    """The replies that wait for one pass."""

    __slots__ = ("due_ms", "pending", "waiting")

    def __init__(self, due_ms: int, pending: PendingWrite) -> None:
        self.due_ms = due_ms
        self.pending = pending
        self.waiting: list[tuple[Reply, Build]] = []


class FlushTimeouts:
    """`on_durable` calls back when a ticket's pass is settled, before the replies to it are sent. One timer serves all:
    to set one for each send would cost more than the rest of it."""

    def __init__(self, liveness: Timeline, timeout_ms: int, on_durable: OnDurable) -> None:
        self._liveness = liveness
        self._timeout_ms = timeout_ms
        self._on_durable = on_durable
        self._passes: dict[int, _PendingPass] = {}
        self._timer: Timer | None = None

    def watch(self, pending: PendingWrite, reply: Reply, late: Build) -> Reply:
        """The same reply, which will be what `late` makes if its pass, which is under way, is not durable in time."""
        self.begin(pending).waiting.append((reply, late))
        return reply

    def join(self, pending: PendingWrite, reply: Reply, late: Build) -> Reply:
        """As `watch`, for what was appended before: if its pass is durable already, or late, the reply stays as it
        is."""
        if (found := self._passes.get(pending.number)) is not None:
            found.waiting.append((reply, late))
        return reply

    def begin(self, pending: PendingWrite) -> _PendingPass:
        """Its pass is under way."""
        found = self._passes.get(pending.number)
        if found is not None:
            return found
        due_ms = self._liveness.now_ms() + self._timeout_ms
        made = self._passes[pending.number] = _PendingPass(due_ms, pending)
        self._on_durable(pending, self._pass_durable)
        if self._timer is None:
            self._timer = self._liveness.call_at(due_ms, self._check_timeouts)
        return made

    def _pass_durable(self, pending: PendingWrite) -> None:
        self._passes.pop(pending.number, None)

    def _check_timeouts(self) -> None:
        self._timer = None
        now_ms = self._liveness.now_ms()
        for number, found in list(self._passes.items()):
            if found.due_ms > now_ms:
                self._timer = self._liveness.call_at(found.due_ms, self._check_timeouts)
                break
            del self._passes[number]
            if found.pending.refusal is not None:
                continue  # nothing stays of it, which is told once that is durable
            for reply, late in found.waiting:
                reply.resolve(late())
