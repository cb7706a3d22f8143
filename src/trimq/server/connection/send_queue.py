"""Unsent bytes of one connection: collected during a turn of the loop, then written to the transport in few, bounded
writes. Knows bytes and a transport, never the meaning of the bytes."""

from __future__ import annotations

import sys
from collections import deque
from contextlib import suppress
from typing import Protocol

from trimq.metrics import Counter
from trimq.model import Buffer
from trimq.protocols.contract import Parts

# Maximum of one write to a transport without gather writes, since it copies all bytes that the socket does not take at
# once.
SLICE_BYTES = 256 * 1024

# A connection's budget of bytes in one turn of the loop: after it, the others have their turn.
BYTES_PER_PASS = 4 * SLICE_BYTES

# Parts up to this size are joined: a copy is cheaper than a system call. Longer ones are written without a copy.
_JOIN_BELOW = 32 * 1024

# Maximum number of parts in a gather write; if there are more, short ones are joined first.
_MAX_PIECES = 64


class Endable(Protocol):
    def write_eof(self) -> object: ...


def send_eof(transport: Endable) -> None:
    """Closes the sending side. Ignores the error if the peer has disconnected: the transport will report that."""
    with suppress(OSError):
        transport.write_eof()


class Writable(Protocol):
    """The methods of a transport that are used here."""

    def write(self, data: Buffer) -> object: ...

    def writelines(self, list_of_data: list[Buffer]) -> object: ...


def supports_gather_write(transport: object) -> bool:
    """True if the transport passes several buffers to the socket in one call. asyncio's own transports join them before
    Python 3.12, which copies all bytes."""
    return sys.version_info >= (3, 12) or type(transport).__module__.startswith("uvloop")


class SendQueue:
    __slots__ = ("_parts", "_sent_bytes", "is_blocked", "supports_gather_write", "unsent_bytes")

    def __init__(self, sent_bytes: Counter) -> None:
        self._sent_bytes = sent_bytes
        self.supports_gather_write = False
        """See the function of this name; set when the transport is known."""
        self._parts: deque[Buffer] = deque()
        self.unsent_bytes = 0
        self.is_blocked = False
        """True if the transport has paused writing."""

    def __bool__(self) -> bool:
        return bool(self._parts)

    def put(self, parts: Parts) -> None:
        for part in parts:
            if size := len(part):
                self._parts.append(part)
                self.unsent_bytes += size

    def write_to(self, transport: Writable) -> None:
        """Writes up to the budget of this turn. Short replies, however many, are sent in one write; so are long ones if
        the transport supports gather writes, since each separate write wakes the peer."""
        if self.is_blocked or not self._parts:
            return
        if self.unsent_bytes <= _JOIN_BELOW:
            self._write_all(transport, [b"".join(self._parts)])
        elif self.supports_gather_write and self.unsent_bytes <= BYTES_PER_PASS and len(self._parts) <= _MAX_PIECES:
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
        """Returns up to one slice: of one long part, or of joined short ones."""
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

    def _take(self, max_bytes: int) -> Buffer:
        part = self._parts.popleft()
        if len(part) <= max_bytes:
            return part
        view = memoryview(part)
        self._parts.appendleft(view[max_bytes:])
        return view[:max_bytes]

    def clear(self) -> None:
        self._parts.clear()
        self.unsent_bytes = 0
