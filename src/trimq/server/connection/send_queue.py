"""What waits to be sent on one connection: gathered during a loop pass, then given to the transport in few, bounded
writes. Knows bytes and a transport, never what the bytes say."""

from __future__ import annotations

import sys
from collections import deque
from contextlib import suppress
from typing import Protocol

from trimq.metrics import Counter
from trimq.model import Buffer
from trimq.protocols.contract import Parts

# A transport that does not gather copies what the socket does not take at once, so it is given no more than this at a
# time.
SLICE_BYTES = 256 * 1024

# A connection's share of one loop pass: after so much the others have their turn.
BYTES_PER_PASS = 4 * SLICE_BYTES

# Parts up to this size are joined: to copy one is cheaper than a system call. Longer ones are written as they are.
_JOIN_BELOW = 32 * 1024

# So many may be gathered as they are; of more the short ones are joined first.
_MOST_PIECES = 64


class Endable(Protocol):
    def write_eof(self) -> object: ...


def send_eof(transport: Endable) -> None:
    """Nothing more will be sent. A peer that is gone already is told nothing: its end is on the way to us."""
    with suppress(OSError):
        transport.write_eof()


class Writable(Protocol):
    """The side of a transport that is used here."""

    def write(self, data: Buffer) -> object: ...

    def writelines(self, list_of_data: list[Buffer]) -> object: ...


def supports_gather_write(transport: object) -> bool:
    """Whether the transport hands several buffers to the socket in one call. asyncio's own join them before Python
    3.12, which would copy everything."""
    return sys.version_info >= (3, 12) or type(transport).__module__.startswith("uvloop")


class SendQueue:
    __slots__ = ("_parts", "_sent_bytes", "is_blocked", "supports_gather_write", "unsent_bytes")

    def __init__(self, sent_bytes: Counter) -> None:
        self._sent_bytes = sent_bytes
        self.supports_gather_write = False
        """Whether the transport does; set once it is there."""
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
        """Write this pass's share. Ordinary answers, however many, go out in one write; long ones too if the transport
        gathers, since each write of its own wakes the peer."""
        if self.is_blocked or not self._parts:
            return
        if self.unsent_bytes <= _JOIN_BELOW:
            self._write_all(transport, [b"".join(self._parts)])
        elif self.supports_gather_write and self.unsent_bytes <= BYTES_PER_PASS and len(self._parts) <= _MOST_PIECES:
            self._write_all(transport, list(self._parts))
        else:
            self._write_share(transport)

    def _write_all(self, transport: Writable, pieces: list[Buffer]) -> None:
        self._sent_bytes.value += self.unsent_bytes
        self.clear()
        if len(pieces) == 1:
            transport.write(pieces[0])
        else:
            transport.writelines(pieces)

    def _write_share(self, transport: Writable) -> None:
        left_bytes = BYTES_PER_PASS
        gathered: list[Buffer] = []
        while self._parts and left_bytes > 0 and not self.is_blocked:
            piece = self._next_piece()
            size = len(piece)
            left_bytes -= size
            self.unsent_bytes -= size
            self._sent_bytes.value += size
            if self.supports_gather_write:
                gathered.append(piece)
            else:
                transport.write(piece)
        if len(gathered) == 1:
            transport.write(gathered[0])
        elif gathered:
            transport.writelines(gathered)

    def _next_piece(self) -> Buffer:
        """Up to a slice: of one long part, or short ones joined."""
        parts = self._parts
        first = self._take(SLICE_BYTES)
        size = len(first)
        if not parts or size > _JOIN_BELOW or len(parts[0]) > _JOIN_BELOW:
            return first
        pieces = [first]
        while parts and len(parts[0]) <= min(_JOIN_BELOW, SLICE_BYTES - size):
            piece = parts.popleft()
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
