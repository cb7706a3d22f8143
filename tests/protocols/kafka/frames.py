"""Request frames as clients send them, for the tests of the connection."""

from __future__ import annotations

import struct

from trimq.protocols.kafka.messages.schema import RequestMessage
from trimq.protocols.kafka.wire.codec import encode, is_flexible


def request_frame(
    message: RequestMessage,
    version: int,
    correlation_id: int = 7,
    client_id: str | None = "client",
    tags: bytes = b"\0",
) -> bytes:
    """Encodes a request frame. `tags` are the tagged fields of its header, in the versions that have them."""
    name = b"" if client_id is None else client_id.encode()
    length = -1 if client_id is None else len(name)
    header = struct.pack(">hhih", message.API_KEY, version, correlation_id, length) + name
    if is_flexible(message.API_KEY, version):
        header += tags
    return framed(header + encode(message, version))


def framed(content: bytes) -> bytes:
    return struct.pack(">i", len(content)) + content
