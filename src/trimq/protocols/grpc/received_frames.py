"""Receive buffer that is cut into HTTP/2 frames. Knows nothing of the contents of frames."""

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
from trimq.wire.receive_buffer import ConnectionReceiveMemory, CopiedReceiveBuffer

BUFFER_BYTES = 2 * (HEAD_BYTES + FRAME_BYTES)  # a partly received frame takes at most half of it: it never grows

Frame = tuple[int, int, int, bytes]
"""Type, flags, stream and payload."""


class ReceivedFrames(CopiedReceiveBuffer):
    __slots__ = ("_has_preface",)

    def __init__(self, memory: ConnectionReceiveMemory) -> None:
        super().__init__(memory, BUFFER_BYTES, BUFFER_BYTES, min_room=FRAME_BYTES)
        self._has_preface = False

    def next(self) -> Frame | None:
        """Returns the next complete frame, or None until more bytes arrive. Raises Http2ConnectionError if the bytes
        are not HTTP/2."""
        if not self._has_preface and not self._read_preface():
            return None
        begin = self.start + HEAD_BYTES
        if begin > self.end:
            return None
        mark, flags, number = HEAD.unpack_from(self.data, self.start)
        length = mark >> 8
        if length > FRAME_BYTES:
            raise Http2ConnectionError(
                ErrorCode.FRAME_SIZE_ERROR, f"frame of {length} bytes, but at most {FRAME_BYTES} are allowed"
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
