"""What waits to be sent on one connection: gathered during a loop pass, then given to the transport in few, bounded
writes. Knows bytes and a transport, never what the bytes say."""

from __future__ import annotations

from collections import deque
from typing import Protocol

from trimq.metrics import Counter
from trimq.model import Buffer
from trimq.protocols.contract import Parts

# A transport copies what the socket does not take at once, so it is given no more than this at a time.
SLICE_BYTES = 256 * 1024

# A connection's share of one loop pass: so many slices, and the others have their turn.
_SLICES_PER_PASS = 4


class Writable(Protocol):
    """The side of a transport that is used here."""

    def write(self, data: Buffer) -> object: ...


class Outbox:
    __slots__ = ("_parts", "_sent_bytes", "is_blocked", "unsent_bytes")

    def __init__(self, sent_bytes: Counter) -> None:
        self._sent_bytes = sent_bytes
        self._parts: deque[Buffer] = deque()
        self.unsent_bytes = 0
        self.is_blocked = False
        """The transport has asked to be given nothing for now."""

    def __bool__(self) -> bool:
        return bool(self._parts)

    def put(self, parts: Parts) -> None:
        for part in parts:
            if size := len(part):
                self._parts.append(part)
                self.unsent_bytes += size

    def write_to(self, transport: Writable) -> None:
        """Write this pass's share. What fits into one slice goes out in one write."""
        for _ in range(_SLICES_PER_PASS):
            if self.is_blocked or not self._parts:
                return
            piece = self._next_piece()
            size = len(piece)
            self.unsent_bytes -= size
            self._sent_bytes.value += size
            transport.write(piece)

    def _next_piece(self) -> Buffer:
        """Up to a slice. Parts are joined: a copy of that size is cheaper than a system call for each of them."""
        first = self._take(SLICE_BYTES)
        size = len(first)
        if size == SLICE_BYTES or not self._parts:
            return first
        pieces = [first]
        while self._parts and size < SLICE_BYTES:
            piece = self._take(SLICE_BYTES - size)
            size += len(piece)
            pieces.append(piece)
        return b"".join(pieces)

    def _take(self, most_bytes: int) -> Buffer:
        part = self._parts.popleft()
        if len(part) <= most_bytes:
            return part
        view = memoryview(part)
        self._parts.appendleft(view[most_bytes:])
        return view[:most_bytes]

    def clear(self) -> None:
        self._parts.clear()
        self.unsent_bytes = 0
