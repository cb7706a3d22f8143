"""Calls of a peer that has yet to read what it was answered: they wait until it has. Knows how much they hold."""

from __future__ import annotations

from trimq.protocols.grpc.calls import Asked
from trimq.protocols.grpc.receive_window import Intake
from trimq.protocols.grpc.streams import Stream


class Postponed:
    """Of one connection, in their order. Together they hold `most_bytes`, or are one. What they hold is counted by
    `intake`."""

    def __init__(self, most_bytes: int, intake: Intake) -> None:
        self._most_bytes = most_bytes
        self._intake = intake
        self._bytes = 0
        self._by_stream: dict[Stream, Asked] = {}

    def __len__(self) -> int:
        return len(self._by_stream)

    def add(self, asked: Asked) -> bool:
        """Whether there is room for it."""
        size = self._bytes + len(asked.raw)
        if self._by_stream and size > self._most_bytes:
            return False
        self._intake.keep(asked.stream, len(asked.raw))
        if self._intake.shortage:
            return False
        self._bytes = size
        self._by_stream[asked.stream] = asked
        return True

    def take(self) -> Asked:
        first = self._by_stream[next(iter(self._by_stream))]
        self.drop(first.stream)
        return first

    def drop(self, stream: Stream) -> None:
        """Nobody waits for it any more, if somebody did."""
        dropped = self._by_stream.pop(stream, None)
        if dropped is not None:
            self._bytes -= len(dropped.raw)
            self._intake.keep(stream, 0)

    def clear(self) -> None:
        self._by_stream.clear()
        self._bytes = 0
