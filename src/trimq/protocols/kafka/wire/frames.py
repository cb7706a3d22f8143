"""Receive buffer that is cut in place into frames (length i32, then that many bytes). Knows nothing of the contents of
frames."""

from __future__ import annotations

from struct import Struct

from trimq.errors import ProtocolError
from trimq.wire.receive_buffer import ConnectionReceiveMemory, ReceiveMemory, ViewedReceiveBuffer

START_SIZE = 64 * 1024
LENGTH_SIZE = 4

unpack_length = Struct(">i").unpack_from


class InvalidFrame(ProtocolError):
    """The length prefix of a frame is not positive, or exceeds the limit."""


class ReceivedFrames(ViewedReceiveBuffer):
    """Received frames of one connection, read without copying them. When the limit of `receive_memory` is exceeded,
    connections with a partly received frame larger than `start_size` have to yield."""

    __slots__ = ("frame_limit",)

    def __init__(
        self, frame_limit: int, start_size: int = START_SIZE, receive_memory: ReceiveMemory | None = None
    ) -> None:
        super().__init__(start_size, ConnectionReceiveMemory(receive_memory, allowed_bytes=0))
        self.frame_limit = frame_limit

    def next_frame(self) -> tuple[int, int] | None:
        """Cuts the next frame. Returns the start and end of its bytes in `data`, or None if it is incomplete."""
        begin = self.start + LENGTH_SIZE
        if begin > self.end:
            return None
        (length,) = unpack_length(self.data, self.start)
        if not 0 < length <= self.frame_limit:
            raise InvalidFrame(f"frame of {length} bytes, but 1 to {self.frame_limit} are allowed")
        finish: int = begin + length
        if finish > self.end:
            if self.memory.must_close():
                self.drop()
                raise InvalidFrame(self.memory.reason)
            return None
        if self.memory.count:
            self.memory.renew()
        self.start = finish
        return begin, finish

    def first_frame_size(self) -> int:
        if self.end - self.start < LENGTH_SIZE:
            return LENGTH_SIZE
        (length,) = unpack_length(self.data, self.start)
        return LENGTH_SIZE + int(length) if 0 < length <= self.frame_limit else LENGTH_SIZE
