"""What the broker asks of clients on their own connections, until they answer, their time is over, or they are gone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Generic, NamedTuple, TypeVar

from trimq.clock import Timeline, Timer
from trimq.model import Buffer
from trimq.protocols.contract import Outlet
from trimq.protocols.rocketmq.wire.remoting import Command, encode_command

Done = Callable[[Command | None], None]
"""Told the answer, or None: there will be none."""


T = TypeVar("T")


class Waiting(Generic[T]):
    """Somebody waits for one answer: of those that come the first counts, and none once nobody waits."""

    def __init__(self, done: Callable[[T], object]) -> None:
        self._done: Callable[[T], object] | None = done

    def settle(self, value: T) -> None:
        done, self._done = self._done, None
        if done is not None:
            done(value)

    def end(self) -> None:
        self._done = None


class _Call(NamedTuple):
    done: Done
    timer: Timer


class ClientCalls:
    def __init__(self, liveness: Timeline, next_opaque: Callable[[], int]) -> None:
        self._liveness = liveness
        self._next_opaque = next_opaque
        self._calls: dict[Outlet, dict[int, _Call]] = {}

    def ask(
        self, outlet: Outlet, code: int, fields: Mapping[str, str], body: Buffer, patience_ms: int, done: Done
    ) -> None:
        """`done` is called once: later, or at once if the client reads too slowly to be asked anything."""
        if outlet.is_congested:
            done(None)
            return
        opaque = self._next_opaque()
        due_ms = self._liveness.now_ms() + patience_ms
        timer = self._liveness.call_at(due_ms, lambda: self._settle(outlet, opaque, None))
        self._calls.setdefault(outlet, {})[opaque] = _Call(done, timer)
        head = encode_command(code, opaque, 0, fields, size=len(body))
        outlet.send([head, body] if body else [head])

    def answered(self, outlet: Outlet, answer: Command) -> None:
        """An answer to nothing that was asked is passed over."""
        self._settle(outlet, answer.opaque, answer)

    def gone(self, outlet: Outlet) -> None:
        for opaque in list(self._calls.get(outlet, {})):
            self._settle(outlet, opaque, None)

    def _settle(self, outlet: Outlet, opaque: int, answer: Command | None) -> None:
        calls = self._calls.get(outlet, {})
        call = calls.pop(opaque, None)
        if call is None:
            return
        if not calls:
            del self._calls[outlet]
        call.timer.cancel()
        call.done(answer)
