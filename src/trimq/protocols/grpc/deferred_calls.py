"""Calls of a peer that has not read its earlier answers: deferred until it has. Limits the memory they hold."""

from __future__ import annotations

from trimq.protocols.grpc.calls import UnaryCall
from trimq.protocols.grpc.receive_window import ReceiveWindow
from trimq.protocols.grpc.streams import Http2Stream


class DeferredCalls:
    """Deferred calls of one connection, in order. Together they hold at most `max_bytes`, but at least one call.
    `receive_window` counts their bytes."""

    def __init__(self, max_bytes: int, receive_window: ReceiveWindow) -> None:
        self._max_bytes = max_bytes
        self._receive_window = receive_window
        self._bytes = 0
        self._by_stream: dict[Http2Stream, UnaryCall] = {}

    def __len__(self) -> int:
        return len(self._by_stream)

    def add(self, call: UnaryCall) -> bool:
        """Defers a call. Returns False if there is no room for it."""
        size = self._bytes + len(call.raw)
        if self._by_stream and size > self._max_bytes:
            return False
        self._receive_window.keep(call.stream, len(call.raw))
        if self._receive_window.shortage:
            return False
        self._bytes = size
        self._by_stream[call.stream] = call
        return True

    def take(self) -> UnaryCall:
        first = self._by_stream[next(iter(self._by_stream))]
        self.drop(first.stream)
        return first

    def drop(self, stream: Http2Stream) -> None:
        """Drops the call of a cancelled stream, if it was deferred."""
        dropped = self._by_stream.pop(stream, None)
        if dropped is not None:
            self._bytes -= len(dropped.raw)
            self._receive_window.keep(stream, 0)

    def clear(self) -> None:
        self._by_stream.clear()
        self._bytes = 0
