"""Frame layout (type u8, channel u16, length u32, payload, end octet 0xCE) and sizes of the receive buffer. Knows no
method."""

from __future__ import annotations

from struct import Struct

METHOD, HEADER, BODY, HEARTBEAT = 1, 2, 3, 8
END = 0xCE
END_OCTET = b"\xce"
PREFIX_SIZE = 7  # type, channel, length
OVERHEAD = 8  # prefix and end octet

START_SIZE = 64 * 1024
KEPT_SIZE = 512 * 1024  # a larger receive buffer is freed when it is empty

unpack_prefix = Struct(">BHI").unpack_from
pack_prefix = Struct(">BHI").pack

HEARTBEAT_FRAME = pack_prefix(HEARTBEAT, 0, 0) + END_OCTET


def frame(kind: int, channel: int, payload: bytes) -> bytes:
    return pack_prefix(kind, channel, len(payload)) + payload + END_OCTET
