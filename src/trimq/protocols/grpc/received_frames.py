"""Received bytes, cut into the frames of an HTTP/2 connection. Knows nothing of what the frames say."""

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
from trimq.protocols.receive_buffer import ConnectionReceiveMemory, CopiedReceiveBuffer

BUFFER_BYTES = 2 * (HEAD_BYTES + FRAME_BYTES)  # a partly received frame takes at most half of it: it never grows

Frame = tuple[int, int, int, bytes]
"""Its kind, flags, stream and payload."""


class ReceivedFrames(CopiedReceiveBuffer):
    __slots__ = ("_has_preface",)

    def __init__(self, memory: ConnectionReceiveMemory) -> None:
        super().__init__(memory, BUFFER_BYTES, BUFFER_BYTES, least_room=FRAME_BYTES)
        self._has_preface = False

    def next(self) -> Frame | None:
        """The next whole frame, or None until more bytes arrive. Http2ConnectionError: there will be none."""
        if not self._has_preface and not self._read_preface():
            return None
        begin = self.start + HEAD_BYTES
        if begin > self.end:
            return None
        mark, flags, number = HEAD.unpack_from(self.data, self.start)
        length = mark >> 8
        if length > FRAME_BYTES:
            raise Http2ConnectionError(
                ErrorCode.FRAME_SIZE_ERROR, f"a frame of {length} bytes, where {FRAME_BYTES} are allowed"
            )
        finish = begin + length
        if finish > self.end:
            return None
        self.start = finish
        return mark & 0xFF, flags, number & NUMBER_BITS, bytes(self.view[begin:finish])

    def _read_preface(self) -> bool:
        held = self.end - self.start
        seen = bytes(self.view[self.start : self.start + min(held, len(PREFACE))])
        if not PREFACE.startswith(seen):
            raise Http2ConnectionError(ErrorCode.PROTOCOL_ERROR, "the peer does not speak HTTP/2")
        if held < len(PREFACE):
            return False
        self.start += len(PREFACE)
        self._has_preface = True
        return True
