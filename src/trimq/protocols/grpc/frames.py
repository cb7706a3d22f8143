"""The frames of HTTP/2 (RFC 9113): their kinds, flags and errors, and how those are written that we send. Knows no
stream and no header."""

from __future__ import annotations

from enum import IntEnum
from struct import Struct

from trimq.errors import ProtocolError

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEAD = Struct(">IBI")  # length and kind, flags, stream
HEAD_BYTES = 9
FRAME_BYTES = 16_384  # the most that we take, and the least that everybody does
LARGEST_FRAME = (1 << 24) - 1
LARGEST_WINDOW = (1 << 31) - 1
DEFAULT_WINDOW = 65_535
NUMBER_BITS = 0x7FFF_FFFF

_WORD = Struct(">I")
_SETTING = Struct(">HI")
_GOODBYE = Struct(">II")


class FrameType(IntEnum):
    DATA = 0
    HEADERS = 1
    PRIORITY = 2
    RST_STREAM = 3
    SETTINGS = 4
    PUSH_PROMISE = 5
    PING = 6
    GOAWAY = 7
    WINDOW_UPDATE = 8
    CONTINUATION = 9


# Flags, as plain numbers: they are looked at in every frame.
END_STREAM = 1
ACK = 1
END_HEADERS = 4
PADDED = 8
HAS_PRIORITY = 32


class Setting(IntEnum):
    HEADER_TABLE_SIZE = 1
    ENABLE_PUSH = 2
    MAX_CONCURRENT_STREAMS = 3
    INITIAL_WINDOW_SIZE = 4
    MAX_FRAME_SIZE = 5
    MAX_HEADER_LIST_SIZE = 6


class ErrorCode(IntEnum):
    """Why a stream or a connection ends, as the peer is told it."""

    NO_ERROR = 0
    PROTOCOL_ERROR = 1
    INTERNAL_ERROR = 2
    FLOW_CONTROL_ERROR = 3
    STREAM_CLOSED = 5
    FRAME_SIZE_ERROR = 6
    REFUSED_STREAM = 7
    CANCEL = 8
    COMPRESSION_ERROR = 9
    ENHANCE_YOUR_CALM = 11


class Http2ConnectionError(ProtocolError):
    """A peer broke the rules of HTTP/2 in a way that ends its connection."""

    def __init__(self, fault: ErrorCode, reason: str) -> None:
        super().__init__(reason)
        self.fault = fault


def frame(kind: int, flags: int, number: int, payload: bytes = b"") -> bytes:
    return HEAD.pack(len(payload) << 8 | kind, flags, number) + payload


def settings(values: dict[int, int]) -> bytes:
    return frame(FrameType.SETTINGS, 0, 0, b"".join(_SETTING.pack(*pair) for pair in values.items()))


def window_update(number: int, increment: int) -> bytes:
    return frame(FrameType.WINDOW_UPDATE, 0, number, _WORD.pack(increment))


def reset(number: int, fault: ErrorCode) -> bytes:
    return frame(FrameType.RST_STREAM, 0, number, _WORD.pack(fault))


def goaway(last: int, fault: ErrorCode, reason: str) -> bytes:
    return frame(FrameType.GOAWAY, 0, 0, _GOODBYE.pack(last, fault) + reason.encode())


def read_settings(payload: bytes) -> dict[int, int]:
    """The last value of each. BrokenConnection: it is not a list of settings, or one may not have its value."""
    if len(payload) % _SETTING.size:
        raise Http2ConnectionError(ErrorCode.FRAME_SIZE_ERROR, f"settings of {len(payload)} bytes")
    found = dict(_SETTING.iter_unpack(payload))
    if found.get(Setting.ENABLE_PUSH, 0) > 1:
        raise Http2ConnectionError(ErrorCode.PROTOCOL_ERROR, "pushing can be allowed or not, nothing else")
    if found.get(Setting.INITIAL_WINDOW_SIZE, 0) > LARGEST_WINDOW:
        raise Http2ConnectionError(ErrorCode.FLOW_CONTROL_ERROR, f"a window is at most {LARGEST_WINDOW} bytes")
    if not FRAME_BYTES <= found.get(Setting.MAX_FRAME_SIZE, FRAME_BYTES) <= LARGEST_FRAME:
        raise Http2ConnectionError(ErrorCode.PROTOCOL_ERROR, f"frames of {found[Setting.MAX_FRAME_SIZE]} bytes")
    return found


def read_word(payload: bytes) -> int:
    """Of a frame that is a number."""
    if len(payload) != _WORD.size:
        raise Http2ConnectionError(ErrorCode.FRAME_SIZE_ERROR, f"a frame of {len(payload)} bytes, where 4 are meant")
    word: int = _WORD.unpack(payload)[0]
    return word
