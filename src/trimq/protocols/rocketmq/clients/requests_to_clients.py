"""Requests from the broker to clients on their own connections. Each ends with a response, a time-out, or the end of
the connection."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Generic, NamedTuple, TypeVar

from trimq.clock import Timeline, Timer
from trimq.model import Buffer
from trimq.protocols.contract import SessionControl
from trimq.wire.remoting import Command, encode_command

OnResponse = Callable[[Command | None], None]
"""Called with the response, or with None if there will be none."""


T = TypeVar("T")


class OneShotCallback(Generic[T]):
    """Callback for one response: only the first value is passed on, and none after `end`."""

    def __init__(self, done: Callable[[T], object]) -> None:
        self._done: Callable[[T], object] | None = done

    def invoke(self, value: T) -> None:
        done, self._done = self._done, None
        if done is not None:
            done(value)

    def end(self) -> None:
        self._done = None


class _PendingRequest(NamedTuple):
    done: OnResponse
    timer: Timer


class ClientRequests:
    def __init__(self, liveness: Timeline, next_opaque: Callable[[], int]) -> None:
        self._liveness = liveness
        self._next_opaque = next_opaque
        self._requests: dict[SessionControl, dict[int, _PendingRequest]] = {}

    def send_request(
        self,
        outlet: SessionControl,
        code: int,
        fields: Mapping[str, str],
        body: Buffer,
        timeout_ms: int,
        done: OnResponse,
    ) -> None:
        """Calls `done` once: later, or at once with None if the client reads too slowly to be sent a request."""
        if outlet.is_congested:
            done(None)
            return
        opaque = self._next_opaque()
        due_ms = self._liveness.now_ms() + timeout_ms
        timer = self._liveness.call_at(due_ms, lambda: self._complete(outlet, opaque, None))
        self._requests.setdefault(outlet, {})[opaque] = _PendingRequest(done, timer)
        head = encode_command(code, opaque, 0, fields, size=len(body))
        outlet.send([head, body] if body else [head])

    def response_received(self, outlet: SessionControl, answer: Command) -> None:
        """Passes the response to its request. A response to an unknown request is ignored."""
        self._complete(outlet, answer.opaque, answer)

    def connection_closed(self, outlet: SessionControl) -> None:
        for opaque in list(self._requests.get(outlet, {})):
            self._complete(outlet, opaque, None)

    def _complete(self, outlet: SessionControl, opaque: int, answer: Command | None) -> None:
        calls = self._requests.get(outlet, {})
        call = calls.pop(opaque, None)
        if call is None:
            return
        if not calls:
            del self._requests[outlet]
        call.timer.cancel()
        call.done(answer)
