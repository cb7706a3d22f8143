"""Received bytes, cut into the frames of an HTTP/2 connection. Owns the memory that it receives into; knows nothing of
what the frames say."""

from __future__ import annotations

from trimq.protocols.grpc.frames import (
    FRAME_BYTES,
    HEAD,
    HEAD_BYTES,
    NUMBER_BITS,
    PREFACE,
    ErrorCode,
    Http2ConnectionError,
)

BUFFER_BYTES = 2 * FRAME_BYTES

Frame = tuple[int, int, int, bytes]
"""Its kind, flags, stream and payload."""


class ReceivedFrames:
    """`get_buffer`, `buffer_updated` and `rest` are a conversation's. The buffer never grows."""

    __slots__ = ("_data", "_end", "_has_preface", "_start")

    def __init__(self) -> None:
        self._data = bytearray()
        self._start = self._end = 0
        self._has_preface = False

    def get_buffer(self, size_hint: int) -> memoryview:
        """Two frames fit into the buffer: what has come of one is moved to its beginning."""
        if self._start == self._end:
            self._start = self._end = 0
            if not self._data:
                self._data = bytearray(BUFFER_BYTES)
        elif len(self._data) - self._end < FRAME_BYTES:
            held = self._end - self._start
            self._data[:held] = self._data[self._start : self._end]
            self._start, self._end = 0, held
        return memoryview(self._data)[self._end :]

    def buffer_updated(self, count: int) -> None:
        self._end += count

    def rest(self) -> bool:
        if self._start != self._end:
            return False
        self.drop()
        return True

    def drop(self) -> None:
        """The connection is gone, or nothing is under way: no memory is needed."""
        self._data = bytearray()
        self._start = self._end = 0

    def next(self) -> Frame | None:
        """The next whole frame, or None until more bytes arrive. BrokenConnection: there will be none."""
        if not self._has_preface and not self._read_preface():
            return None
        begin = self._start + HEAD_BYTES
        if begin > self._end:
            return None
        mark, flags, number = HEAD.unpack_from(self._data, self._start)
        length = mark >> 8
        if length > FRAME_BYTES:
            raise Http2ConnectionError(
                ErrorCode.FRAME_SIZE_ERROR, f"a frame of {length} bytes, where {FRAME_BYTES} are allowed"
            )
        finish = begin + length
        if finish > self._end:
            return None
        self._start = finish
        return mark & 0xFF, flags, number & NUMBER_BITS, bytes(memoryview(self._data)[begin:finish])

    def _read_preface(self) -> bool:
        held = self._end - self._start
        seen = bytes(memoryview(self._data)[self._start : self._start + min(held, len(PREFACE))])
        if not PREFACE.startswith(seen):
            raise Http2ConnectionError(ErrorCode.PROTOCOL_ERROR, "the peer does not speak HTTP/2")
        if held < len(PREFACE):
            return False
        self._start += len(PREFACE)
        self._has_preface = True
        return True
