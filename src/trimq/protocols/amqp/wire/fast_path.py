"""Fast path of AmqpConnection for consecutive publishes with the same method frame and for consecutive single acks of
one channel. Falls back to parsing frame by frame, which checks all rules, when anything differs."""

from __future__ import annotations

from struct import Struct

from trimq.formats.amqp_content.field_tables import BadField
from trimq.formats.amqp_content.property_list import check_properties
from trimq.protocols.amqp import methods
from trimq.protocols.amqp.wire.events import Acks, Publish
from trimq.protocols.amqp.wire.frames import BODY, END, HEADER, PREFIX_SIZE, unpack_prefix
from trimq.wire.receive_buffer import CopiedReceiveBuffer

_unpack_content = Struct(">BHIHHQ").unpack_from  # header frame up to the property flags
_CONTENT_SIZE = 19
_BASIC = 60

_ACK = Struct(">11sQH")  # frame up to the tag; tag; bits and end octet
_MULTIPLE = 0x100
_ACKS_AT_ONCE = 200

# Bytes copied at a time: slicing bytes is faster than slicing a mutable buffer.
_COPIED_BYTES = 64 * 1024

_Extent = tuple[int, int, int, int]
"""Positions in a message: start and end of the properties, start of the body, and the last end octet."""


class PublishFastPath:
    """Fast path of parsing basic.publish on the channel of the last message: a publisher rarely changes the method
    frame. `take` falls back (returns None) when the next bytes differ or are incomplete."""

    __slots__ = ("_head", "_header", "_length", "_max_bytes", "_method", "_method_frame", "_received", "channel")

    def __init__(self, received: CopiedReceiveBuffer, max_message_bytes: int) -> None:
        self._received = received
        self._max_bytes = max_message_bytes
        self._method = methods.BasicPublish()
        self._method_frame = b""
        self._header = b""
        # Bytes before the last body, valid with these properties, and its length; -1: the message had no body frame.
        self._head = b""
        self._length = 0
        self.channel = 0
        """Channel of the last message; 0: none, or the fast path was reset."""

    def learn(self, channel: int, method: methods.BasicPublish, frame: bytes) -> None:
        self.channel = channel
        self._method = method
        self._method_frame = frame
        self._head = b""

    def check_header(self, header: bytes) -> None:
        """Raises BadField if the properties do not match their flags."""
        if header != self._header:
            check_properties(header)
            self._header = header
            self._head = b""

    def take(self, frame_max: int) -> Publish | None:
        """Returns the next message, or None if the frame parser must handle the next bytes."""
        if not self.channel:
            return None
        found = self._cut(self._received.start, frame_max)
        if found is None:
            return None
        header, body, self._received.start = found
        method = self._method
        return Publish(
            self.channel, method.exchange, method.routing_key, method.is_mandatory, method.is_immediate, header, body
        )

    def take_similar(self, flags: bytes, most: int, frame_max: int) -> list[tuple[bytes, bytes]]:
        """Returns properties and bodies of the messages right after the last one, while their properties start with
        `flags` (the same kinds of properties)."""
        found: list[tuple[bytes, bytes]] = []
        received = self._received
        start = received.start
        if not self.channel or not received.data.startswith(self._method_frame, start):
            return found
        copy = bytes(received.view[start : min(received.end, start + _COPIED_BYTES)])
        end = len(copy)
        at = 0
        while len(found) < most:
            header, length = self._header, self._length
            head = self._head if header.startswith(flags) else b""
            while head and copy.startswith(head, at) and len(found) < most:
                body_at = at + len(head)
                finish = body_at + length
                if finish >= end or copy[finish] != END:
                    break
                found.append((header, copy[body_at:finish]))
                at = finish + 1
            other = self._cut(start + at, frame_max) if len(found) < most else None
            if other is None or not other[0].startswith(flags):
                break
            found.append(other[:2])
            at = other[2] - start
        received.start = start + at
        return found

    def _cut(self, start: int, frame_max: int) -> tuple[bytes, bytes, int] | None:
        """Cuts the message at `start`. Returns its properties, its body, and the start of the next message."""
        received = self._received
        if not received.data.startswith(self._method_frame, start):
            return None
        extent = self._find(received.data, start, received.end, frame_max)
        if extent is None:
            return None
        header_start, header_end, body_start, finish = extent
        header = bytes(received.view[header_start:header_end])
        try:
            self.check_header(header)
        except BadField:
            return None
        self._head = bytes(received.view[start:body_start])
        self._length = finish - body_start
        return self._header, bytes(received.view[body_start : max(body_start, finish)]), finish + 1

    def _find(self, data: bytearray, start: int, end: int, frame_max: int) -> _Extent | None:
        """Finds the parts of the message at `start`, whose method frame was already compared."""
        number = self.channel
        position = start + len(self._method_frame)
        if position + _CONTENT_SIZE > end:
            return None
        kind, channel, length, class_id, weight, size = _unpack_content(data, position)
        header_end = position + PREFIX_SIZE + length
        if kind != HEADER or channel != number or class_id != _BASIC or length < 14 or header_end >= end or weight:
            return None
        if length > frame_max or data[header_end] != END:
            return None
        header_start = position + _CONTENT_SIZE
        if not size:
            return header_start, header_end, header_end + 1, header_end
        body_start = header_end + 1 + PREFIX_SIZE
        if body_start > end:
            return None
        kind, channel, length = unpack_prefix(data, header_end + 1)
        finish = body_start + length
        if kind != BODY or channel != number or length != size or finish >= end:
            return None
        if length > frame_max or size > self._max_bytes or data[finish] != END:
            return None
        return header_start, header_end, body_start, finish


def take_acks(received: CopiedReceiveBuffer, channel: int, prefix: bytes) -> Acks | None:
    """Takes consecutive single acks whose frames start with `prefix`, or one ack with `multiple` if it is first.
    Returns None if no complete ack was received."""
    tags: list[int] = []
    start = received.start
    more = True
    while more and (count := min((received.end - start) // _ACK.size, _ACKS_AT_ONCE)):
        for before, tag, rest in _ACK.iter_unpack(received.view[start : start + count * _ACK.size]):
            if rest & 0xFF != END or before != prefix or rest & _MULTIPLE:
                more = False
                break
            tags.append(tag)
            start += _ACK.size
    if not tags and received.end - start >= _ACK.size:
        before, tag, rest = _ACK.unpack_from(received.data, start)
        if rest & 0xFF == END and before == prefix:
            received.start = start + _ACK.size
            return Acks(channel, [tag], True)
    received.start = start
    return Acks(channel, tags, False) if tags else None
