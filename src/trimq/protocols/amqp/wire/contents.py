"""Codec of contents: assembles method, header and body frames into messages, and writes messages as frames. Knows
neither senders nor storage."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct

from trimq.model import Buffer
from trimq.protocols.amqp import methods
from trimq.protocols.amqp.wire.codes import Code, ConnectionFault
from trimq.protocols.amqp.wire.frames import BODY, END_OCTET, HEADER, METHOD, OVERHEAD, frame, pack_prefix
from trimq.protocols.amqp.wire.method_codec import write_method, write_short_string

_HEADER = Struct(">HHQ")  # class, weight, body size; then property flags and list
_pack_content = Struct(">BHIHHQ").pack
_BASIC = 60

CONTENT_METHODS = (methods.BasicPublish, methods.BasicReturn, methods.BasicDeliver, methods.BasicGetOk)

_DELIVER = methods.BasicDeliver.ID.to_bytes(4, "big")
_GET_OK = methods.BasicGetOk.ID.to_bytes(4, "big")


_NO_HEADER = "expected content header for class 60, got non content header frame instead"

# Shorter body frames are appended to one buffer: a bytes object for each would take many times its size.
_SHORT_BYTES = 4096


class Content:
    """Content that is being received."""

    __slots__ = ("_chunks", "_end", "has_header", "header", "method", "received", "size")

    def __init__(self, method: methods.Method) -> None:
        self.method = method
        self.has_header = False
        self.header = b""
        self.size = 0
        self.received = 0
        self._chunks: list[bytes] = []
        self._end = bytearray()

    @property
    def held(self) -> int:
        """Bytes received so far."""
        return len(self.header) + self.received

    def add_body(self, kind: int, payload: bytes) -> None:
        """Adds a body frame; it may be empty."""
        if kind != BODY:
            reason = "expected content body, got non content body frame instead"
            raise ConnectionFault(Code.UNEXPECTED_FRAME, reason, *self.method.class_and_method)
        if self.received + len(payload) > self.size:
            reason = "content body frame exceeds remaining content size"
            raise ConnectionFault(Code.FRAME_ERROR, reason, *self.method.class_and_method)
        self.received += len(payload)
        if len(payload) < _SHORT_BYTES and len(payload) < self.size:
            self._end += payload
            return
        if self._end:
            self._chunks.append(bytes(self._end))
            self._end = bytearray()
        self._chunks.append(payload)

    def body(self) -> bytes:
        if len(self._chunks) == 1 and not self._end:
            return self._chunks[0]
        return b"".join((*self._chunks, self._end))

    def method_frame(self, channel: int) -> bytes:
        return frame(METHOD, channel, write_method(self.method))


def read_content_header(method: methods.Method, kind: int, payload: bytes) -> tuple[int, bytes]:
    """Reads the content header that follows `method`. Returns the body size and the bytes of property flags and
    list."""
    ids = method.class_and_method
    if kind != HEADER:
        raise ConnectionFault(Code.UNEXPECTED_FRAME, _NO_HEADER, *ids)
    class_id, weight, size = _HEADER.unpack_from(payload)
    if weight:
        raise ConnectionFault(Code.UNEXPECTED_FRAME, _NO_HEADER, *ids)
    if class_id != _BASIC:
        reason = f"expected content header for class 60, got one for class {class_id} instead"
        raise ConnectionFault(Code.UNEXPECTED_FRAME, reason, *ids)
    return size, payload[_HEADER.size :]


def write_content(channel: int, header: bytes, body: bytes, frame_max: int) -> list[Buffer]:
    """Writes header and body frames. The property bytes are those of the producer, unchanged."""
    size = len(body)
    start = _pack_content(HEADER, channel, 12 + len(header), _BASIC, 0, size)
    if size == 0:
        return [start + header + END_OCTET]
    most = frame_max - OVERHEAD
    if size <= most:
        return [b"%b%b\xce%b%b\xce" % (start, header, pack_prefix(BODY, channel, size), body)]
    parts: list[Buffer] = [start + header + END_OCTET]
    view = memoryview(body)
    for position in range(0, size, most):
        piece = view[position : position + most]
        parts += (pack_prefix(BODY, channel, len(piece)), piece, END_OCTET)
    return parts


class DeliveryFrames:
    """Writes basic.deliver with its content for one consumer. Reuses the bytes around the delivery tag while messages
    differ only in tag and body, as most do."""

    __slots__ = ("_after", "_before", "_channel", "_frame_max", "_shape", "_tag")

    def __init__(self, channel: int, consumer_tag: str, frame_max: int) -> None:
        self._channel = channel
        self._frame_max = frame_max
        self._tag = write_short_string(consumer_tag)
        self._shape: tuple[bool, bytes, bytes, bytes, int] | None = None
        self._before = self._after = b""

    def write(
        self, delivery_tag: int, is_redelivered: bool, exchange: bytes, key: bytes, header: bytes, body: bytes
    ) -> Sequence[Buffer]:
        size = len(body)
        if size > self._frame_max - OVERHEAD or not size:
            start = self._method(is_redelivered, exchange, key)
            content = write_content(self._channel, header, body, self._frame_max)
            return start[0], delivery_tag.to_bytes(8, "big"), start[1], *content
        shape = (is_redelivered, exchange, key, header, size)
        if shape != self._shape:
            self._shape = shape
            self._before, names = self._method(is_redelivered, exchange, key)
            content_start = _pack_content(HEADER, self._channel, 12 + len(header), _BASIC, 0, size)
            self._after = b"%b%b%b\xce%b" % (names, content_start, header, pack_prefix(BODY, self._channel, size))
        return self._before, delivery_tag.to_bytes(8, "big"), self._after, body, END_OCTET

    def _method(self, is_redelivered: bool, exchange: bytes, key: bytes) -> tuple[bytes, bytes]:
        """Returns the method frame before and after the delivery tag."""
        names = b"%c%c%b%c%b\xce" % (is_redelivered, len(exchange), exchange, len(key), key)
        prefix = pack_prefix(METHOD, self._channel, 4 + len(self._tag) + 8 + len(names) - 1)
        return prefix + _DELIVER + self._tag, names


def write_get_ok(
    channel: int, delivery_tag: int, is_redelivered: bool, exchange: bytes, key: bytes, message_count: int
) -> bytes:
    """Writes basic.get-ok with exchange and routing key as the bytes that were published."""
    names = b"%c%b%c%b" % (len(exchange), exchange, len(key), key)
    payload = _GET_OK + delivery_tag.to_bytes(8, "big") + bytes((is_redelivered,)) + names
    return frame(METHOD, channel, payload + min(message_count, 0xFFFFFFFF).to_bytes(4, "big"))


def write_command(channel: int, method: methods.Method) -> bytes:
    """Writes the frame of a method without content."""
    return frame(METHOD, channel, write_method(method))
