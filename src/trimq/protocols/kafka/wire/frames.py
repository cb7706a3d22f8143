"""Received bytes, cut in place into frames of a length and that many bytes. Owns the memory that a connection receives
into; knows nothing of what the frames say."""

from __future__ import annotations

from struct import Struct

from trimq.errors import ProtocolError
from trimq.protocols.contract import ReceiveMemory

START_SIZE = 64 * 1024
LENGTH_SIZE = 4
LEAST_ROOM = 1 / 8  # with less of a buffer free, receiving into the rest of it means too many small reads
SHRINK_AFTER = 16  # times in a row that a quarter of the buffer would have been enough

unpack_length = Struct(">i").unpack_from


class InvalidFrame(ProtocolError):
    """The length before a frame is not positive, or over the limit."""


class ReceiveBuffer:
    """Where a transport puts bytes, and where frames are read without copying them.

    `data[start:end]` has been received and not yet been cut. What was cut stays where it is, unchanged, as long as
    anybody holds a view of `data`: room is then found behind it, or in a new bytearray, and the old one lives on in its
    views. A claimed length alone takes no memory: the buffer at most doubles what has arrived. What it takes beyond
    `start_size` is counted in `receive_memory`.
    """

    __slots__ = ("_receive_memory", "_too_big", "data", "end", "frame_limit", "start", "start_size")

    def __init__(
        self, frame_limit: int, start_size: int = START_SIZE, receive_memory: ReceiveMemory | None = None
    ) -> None:
        self.frame_limit = frame_limit
        self.start_size = start_size
        self.data = bytearray()
        self.start = 0
        self.end = 0
        self._too_big = 0
        self._receive_memory = ReceiveMemory() if receive_memory is None else receive_memory

    def get_buffer(self, _size_hint: int = -1) -> memoryview:
        """Where the next bytes go; never empty. As `asyncio.BufferedProtocol.get_buffer`."""
        if self.start == self.end:
            self._rewind()
        else:
            self._make_room()
        return memoryview(self.data)[self.end :]

    def buffer_updated(self, count: int) -> None:
        """So many bytes were put there."""
        self.end += count

    def next_frame(self) -> tuple[int, int] | None:
        """Cut the next frame: where its bytes begin and end in `data`, or None if it has not arrived in full."""
        begin = self.start + LENGTH_SIZE
        if begin > self.end:
            return None
        (length,) = unpack_length(self.data, self.start)
        if not 0 < length <= self.frame_limit:
            raise InvalidFrame(f"a frame of {length} bytes, where 1 to {self.frame_limit} are allowed")
        finish: int = begin + length
        if finish > self.end:
            if self._receive_memory.is_exceeded:
                self._refuse_to_grow()
            return None
        self.start = finish
        return begin, finish

    def release_buffer(self) -> bool:
        """Give back the memory of an idle connection. Harmless at any time outside a read. False: a frame has arrived
        in part."""
        if self.start != self.end:
            return False
        self.drop()
        return True

    def drop(self) -> None:
        """The connection is gone, and with it what it sent in part."""
        self._switch_to(bytearray())
        self.start = self.end = 0

    def _refuse_to_grow(self) -> None:
        """There is no room for everybody's large frames: this one, if it is large, makes room for the others."""
        if len(self.data) > self.start_size:
            self.drop()
            raise InvalidFrame(
                f"frames that came in part take more than the {self._receive_memory.limit} bytes allowed"
            )

    def _switch_to(self, data: bytearray) -> None:
        grown = max(len(data), self.start_size) - max(len(self.data), self.start_size)
        self._receive_memory.change(grown)
        self.data = data

    def _rewind(self) -> None:
        """Nothing is waiting to be cut: use the buffer from its beginning, if nobody looks at it."""
        room = len(self.data)
        if self.end == 0:
            if room == 0:
                self._switch_to(bytearray(self.start_size))
        elif self._has_no_views():
            self._shrink_slowly()
            self.start = self.end = 0
        elif room - self.end <= room * LEAST_ROOM:
            self._replace(room)

    def _make_room(self) -> None:
        """A frame has arrived in part: move it to where it fits, unless there is room where it is."""
        held = self.end - self.start
        needed = self._size_of_first_frame()
        room = len(self.data)
        if self.end < room and (self.start + needed <= room or needed > room):
            return
        if held == room or needed > room:
            self._replace(max(room, min(needed, 2 * held)) if needed > held else 2 * held)
        elif self._has_no_views():
            self.data[:held] = self.data[self.start : self.end]
            self.start, self.end = 0, held
        else:
            self._replace(room)

    def _size_of_first_frame(self) -> int:
        if self.end - self.start < LENGTH_SIZE:
            return LENGTH_SIZE
        (length,) = unpack_length(self.data, self.start)
        return LENGTH_SIZE + int(length) if 0 < length <= self.frame_limit else LENGTH_SIZE

    def _replace(self, size: int) -> None:
        """Go on in a new bytearray, with what was not yet cut. The old one is left to those who look at it."""
        held = self.end - self.start
        data = bytearray(size)
        data[:held] = memoryview(self.data)[self.start : self.end]
        self._switch_to(data)
        self.start, self.end = 0, held

    def _has_no_views(self) -> bool:
        """Whether nobody holds a view of the bytes: a bytearray refuses to change its size while anybody does."""
        try:
            last = self.data.pop()
        except BufferError:
            return False
        self.data.append(last)
        return True

    def _shrink_slowly(self) -> None:
        """Halve a buffer that has been far too big for a while."""
        if self.end * 4 > len(self.data):
            self._too_big = 0
            return
        self._too_big += 1
        if self._too_big >= SHRINK_AFTER and len(self.data) > self.start_size:
            self._switch_to(bytearray(max(self.start_size, len(self.data) // 2)))
            self._too_big = 0
