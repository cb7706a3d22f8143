"""The short way of what comes in rows: messages that say before their content what the last one said, and single
acknowledgements of one channel. Whatever is not just so is left to the long way, which knows all the rules."""

from __future__ import annotations

from struct import Struct

from trimq.formats.amqp_content.field_tables import BadField
from trimq.formats.amqp_content.property_list import check_properties
from trimq.protocols.amqp import methods
from trimq.protocols.amqp.wire.events import Acks, Publish
from trimq.protocols.amqp.wire.frames import BODY, END, HEADER, PREFIX_SIZE, unpack_prefix
from trimq.protocols.receive_buffer import CopiedReceiveBuffer

_unpack_content = Struct(">BHIHHQ").unpack_from  # a header frame up to the property flags
_CONTENT_SIZE = 19
_BASIC = 60

_ACK = Struct(">11sQH")  # the frame up to the tag, the tag, bits and end octet
_MULTIPLE = 0x100
_ACKS_AT_ONCE = 200

# To cut bytes is quicker than to cut a buffer that may change: so much of it is copied at a time.
_COPIED_BYTES = 64 * 1024

_Extent = tuple[int, int, int, int]
"""Of a message: where its properties begin and end, where its body begins, and where the last octet is."""


class PublishFastPath:
    """Of the channel that a message came from last: the same publisher hardly ever changes what it says before one."""

    __slots__ = ("_head", "_header", "_length", "_max_bytes", "_method", "_method_frame", "_received", "channel")

    def __init__(self, received: CopiedReceiveBuffer, max_message_bytes: int) -> None:
        self._received = received
        self._max_bytes = max_message_bytes
        self._method = methods.BasicPublish()
        self._method_frame = b""
        self._header = b""
        # All that stood before the last body, with these properties, and how long that was; -1: it had no frame.
        self._head = b""
        self._length = 0
        self.channel = 0
        """0: there was none, or it must not be believed any more."""

    def learn(self, channel: int, method: methods.BasicPublish, frame: bytes) -> None:
        self.channel = channel
        self._method = method
        self._method_frame = frame
        self._head = b""

    def check_header(self, header: bytes) -> None:
        """BadField: its properties are not what their flags say."""
        if header != self._header:
            check_properties(header)
            self._header = header
            self._head = b""

    def take(self, frame_max: int) -> Publish | None:
        """The next message, if all of it is there. None: what comes goes the long way."""
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
        """Properties and bodies of the messages that follow the last one at once, if they have the same kinds of
        properties: `flags` is what those begin with."""
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
        """The properties and the body of the message at `start`, and where the next one begins."""
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
        """The message at `start`, whose method frame was compared."""
        number = self.channel
        position = start + len(self._method_frame)
        if position + _CONTENT_SIZE > end:
            return None
        kind, channel, length, class_id, _, size = _unpack_content(data, position)
        header_end = position + PREFIX_SIZE + length
        if kind != HEADER or channel != number or class_id != _BASIC or length < 14 or header_end >= end:
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
    """All acknowledgements that lie here one after the other, each with this before its tag; or the first, if it is of
    several. None: there is no whole one."""
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
