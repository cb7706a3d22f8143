"""Flush timeouts: producers of messages that are not durable in time get FLUSH_DISK_TIMEOUT; the messages stay
stored. With flush = pooled, producers do not wait for anything."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trimq.clock import Timeline, Timer
from trimq.protocols.contract import Build, Reply
from trimq.protocols.rocketmq.state.put_times import PutTimes
from trimq.protocols.rocketmq.wire.replies import PendingWrite

OnDurable = Callable[[Any, Callable[[Any], object]], None]


class _PendingPass:
    """Replies that wait for one pass."""

    __slots__ = ("begun_ms", "due_ms", "pending", "waiting")

    def __init__(self, begun_ms: int, due_ms: int, pending: PendingWrite) -> None:
        self.begun_ms = begun_ms
        self.due_ms = due_ms
        self.pending = pending
        self.waiting: list[tuple[Reply, Build]] = []


class FlushTimeouts:
    """Timeouts of passes. `on_durable` calls back when the pass of a ticket has ended, before its replies are sent. One
    timer serves all passes: a timer per send would cost more than the rest of the send. `put_times` gets the time that
    each pass took. `is_pooled`: messages are acknowledged as soon as they are in the pool."""

    def __init__(
        self, liveness: Timeline, timeout_ms: int, on_durable: OnDurable, put_times: PutTimes, is_pooled: bool
    ) -> None:
        self._liveness = liveness
        self._timeout_ms = timeout_ms
        self._on_durable = on_durable
        self._put_times = put_times
        self._is_pooled = is_pooled
        self._passes: dict[int, _PendingPass] = {}
        self._timer: Timer | None = None

    def watch(self, pending: PendingWrite, reply: Reply, late: Build) -> Reply:
        """Makes `late` the response if the pass is not durable in time. Returns the same reply. The pass must be under
        way."""
        if self._is_pooled:
            return self._acknowledge(reply)
        self._pass_of(pending).waiting.append((reply, late))
        return reply

    def join(self, pending: PendingWrite, reply: Reply, late: Build) -> Reply:
        """Like `watch`, for messages that were appended before. Leaves the reply unchanged if the pass is already
        durable or late."""
        if self._is_pooled:
            return self._acknowledge(reply)
        if (found := self._passes.get(pending.number)) is not None:
            found.waiting.append((reply, late))
        return reply

    def begin(self, pending: PendingWrite) -> None:
        """Starts the timeout of the pass, unless it was started before."""
        if not self._is_pooled:
            self._pass_of(pending)

    def _pass_of(self, pending: PendingWrite) -> _PendingPass:
        found = self._passes.get(pending.number)
        if found is not None:
            return found
        now_ms = self._liveness.now_ms()
        due_ms = now_ms + self._timeout_ms
        made = self._passes[pending.number] = _PendingPass(now_ms, due_ms, pending)
        self._on_durable(pending, self._pass_durable)
        if self._timer is None:
            self._timer = self._liveness.call_at(due_ms, self._check_timeouts)
        return made

    def _acknowledge(self, reply: Reply) -> Reply:
        self._put_times.observe(self._liveness.now_ms(), 0, reply.count)
        reply.resolve(reply.take())
        return reply

    def _pass_durable(self, pending: PendingWrite) -> None:
        if (found := self._passes.pop(pending.number, None)) is not None:
            self._measure(found, self._liveness.now_ms())

    def _measure(self, found: _PendingPass, now_ms: int) -> None:
        messages = sum([reply.count for reply, _ in found.waiting])
        if found.pending.refusal is None:
            self._put_times.observe(now_ms, now_ms - found.begun_ms, messages)
        if found.pending.refusal is not None or found.due_ms <= now_ms:
            self._put_times.failed += messages

    def _check_timeouts(self) -> None:
        self._timer = None
        now_ms = self._liveness.now_ms()
        for number, found in list(self._passes.items()):
            if found.due_ms > now_ms:
                self._timer = self._liveness.call_at(found.due_ms, self._check_timeouts)
                break
            del self._passes[number]
            self._measure(found, now_ms)
            if found.pending.refusal is not None:
                continue  # the write failed: the reply reports it when the pass ends
            for reply, late in found.waiting:
                reply.resolve(late())
