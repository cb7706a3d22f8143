"""HTTP/2 frames (RFC 9113): types, flags, error codes, and encoders of the frames that the broker sends. Knows no
stream and no header."""

from __future__ import annotations

from enum import IntEnum
from struct import Struct

from trimq.errors import ProtocolError

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEAD = Struct(">IBI")  # length (24 bits) and type, flags, stream
HEAD_BYTES = 9
FRAME_BYTES = 16_384  # our maximum, and the minimum that every peer must accept
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


# Flags, as plain integers because every frame is checked for them.
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
    """HTTP/2 error code of a reset stream or a closed connection."""

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
    """Violation of HTTP/2 that closes the connection."""

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
    """Decodes a SETTINGS payload; of repeated settings the last counts. Raises Http2ConnectionError if it is malformed
    or a value is invalid."""
    if len(payload) % _SETTING.size:
        raise Http2ConnectionError(ErrorCode.FRAME_SIZE_ERROR, f"settings of {len(payload)} bytes")
    found = dict(_SETTING.iter_unpack(payload))
    if found.get(Setting.ENABLE_PUSH, 0) > 1:
        raise Http2ConnectionError(ErrorCode.PROTOCOL_ERROR, "ENABLE_PUSH must be 0 or 1")
    if found.get(Setting.INITIAL_WINDOW_SIZE, 0) > LARGEST_WINDOW:
        raise Http2ConnectionError(ErrorCode.FLOW_CONTROL_ERROR, f"initial window exceeds {LARGEST_WINDOW} bytes")
    if not FRAME_BYTES <= found.get(Setting.MAX_FRAME_SIZE, FRAME_BYTES) <= LARGEST_FRAME:
        raise Http2ConnectionError(ErrorCode.PROTOCOL_ERROR, f"frames of {found[Setting.MAX_FRAME_SIZE]} bytes")
    return found


def read_word(payload: bytes) -> int:
    """Decodes a payload that is one 32-bit integer."""
    if len(payload) != _WORD.size:
        raise Http2ConnectionError(ErrorCode.FRAME_SIZE_ERROR, f"frame payload of {len(payload)} bytes instead of 4")
    word: int = _WORD.unpack(payload)[0]
    return word
