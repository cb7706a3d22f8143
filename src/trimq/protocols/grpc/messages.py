"""The messages of gRPC inside of a stream's data: five bytes of prefix, then the message, which may be compressed.
Knows limits, no headers."""

from __future__ import annotations

import zlib
from struct import Struct

from trimq.model import Buffer
from trimq.protocols.contract import Parts
from trimq.protocols.grpc.statuses import CallRejected, Status

PREFIX = Struct(">BI")
PREFIX_BYTES = PREFIX.size

_ANY_KIND = 32 + zlib.MAX_WBITS  # gzip or zlib, as the data says


def size_of(data: Buffer, most_bytes: int) -> int:
    """How long the message is that begins here, without its prefix. Rejection: longer than is allowed."""
    size: int = PREFIX.unpack_from(data)[1]
    if size > most_bytes:
        raise CallRejected(
            Status.RESOURCE_EXHAUSTED, f"a message of {size} bytes is larger than the {most_bytes} bytes allowed"
        )
    return size


def content(flag: int, raw: bytes, is_compressed: bool, most_bytes: int) -> bytes:
    """What a message says. Rejection: it cannot be known."""
    if not flag:
        return raw
    if flag != 1 or not is_compressed:
        raise CallRejected(Status.INTERNAL, "a message is compressed in a way that its call does not tell")
    unpacking = zlib.decompressobj(_ANY_KIND)
    try:
        found = unpacking.decompress(raw, most_bytes + 1)
    except zlib.error as error:
        raise CallRejected(Status.INTERNAL, f"a message cannot be decompressed: {error}") from None
    if len(found) > most_bytes:
        raise CallRejected(Status.RESOURCE_EXHAUSTED, f"a message grows to more than the {most_bytes} bytes allowed")
    if not unpacking.eof:
        raise CallRejected(Status.INTERNAL, "a compressed message has no end")
    return found


def framed(parts: Parts) -> bytes:
    """Messages as data, each behind its prefix."""
    if len(parts) == 1:
        (part,) = parts
        return PREFIX.pack(0, len(part)) + part
    pieces: list[Buffer] = []
    for part in parts:
        pieces += (PREFIX.pack(0, len(part)), part)
    return b"".join(pieces)
