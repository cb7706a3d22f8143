"""gRPC messages in the data of a stream: a prefix (compressed flag u8, length u32), then the message, possibly
compressed. Knows limits, no headers."""

from __future__ import annotations

import zlib
from struct import Struct

from trimq.model import Buffer
from trimq.protocols.contract import Parts
from trimq.protocols.grpc.statuses import CallRejected, Status

PREFIX = Struct(">BI")
PREFIX_BYTES = PREFIX.size

_ANY_KIND = 32 + zlib.MAX_WBITS  # gzip or zlib, detected from the data


def size_of(data: Buffer, max_bytes: int) -> int:
    """Returns the size of the message that starts here, without its prefix. Raises CallRejected if it exceeds the
    limit."""
    size: int = PREFIX.unpack_from(data)[1]
    if size > max_bytes:
        raise CallRejected(
            Status.RESOURCE_EXHAUSTED, f"message of {size} bytes is larger than the {max_bytes} bytes allowed"
        )
    return size


def content(flag: int, raw: bytes, is_compressed: bool, max_bytes: int) -> bytes:
    """Returns the decompressed message. Raises CallRejected if it cannot be decompressed."""
    if not flag:
        return raw
    if flag != 1 or not is_compressed:
        raise CallRejected(Status.INTERNAL, "invalid compressed flag, or compressed message without grpc-encoding")
    unpacking = zlib.decompressobj(_ANY_KIND)
    try:
        found = unpacking.decompress(raw, max_bytes + 1)
    except zlib.error as error:
        raise CallRejected(Status.INTERNAL, f"message cannot be decompressed: {error}") from None
    if len(found) > max_bytes:
        raise CallRejected(Status.RESOURCE_EXHAUSTED, f"decompressed message exceeds the {max_bytes} bytes allowed")
    if not unpacking.eof:
        raise CallRejected(Status.INTERNAL, "compressed message is truncated")
    return found


def framed(parts: Parts) -> bytes:
    """Encodes messages, each with its prefix."""
    if len(parts) == 1:
        (part,) = parts
        return PREFIX.pack(0, len(part)) + part
    pieces: list[Buffer] = []
    for part in parts:
        pieces += (PREFIX.pack(0, len(part)), part)
    return b"".join(pieces)
