"""The bytes of the answers that are given most often, filled into what they share. Protobuf would make the same of
them, in three times the time."""

from __future__ import annotations

from collections.abc import Iterable

from trimq.protocols.rocketmq.grpc.wire import wire
from trimq.protocols.rocketmq.grpc.wire.enums import Code
from trimq.protocols.rocketmq.grpc.wire.fields import field, text, varint

LONGEST_TEXT = 127
"""Up to this a length takes one byte."""

_OK = wire.Status(code=Code.OK, message="OK")
_SENT: bytes = wire.SendMessageResponse(status=_OK).SerializeToString()
_SENT_ENTRY: bytes = wire.SendResultEntry(status=_OK).SerializeToString()

_ACKED: bytes = wire.AckMessageResponse(status=_OK).SerializeToString()
_ACKED_ENTRY: bytes = wire.AckMessageResultEntry(status=_OK).SerializeToString()

# Numbers of fields, and how their values are written: of the entries in an answer, and of what stands in each.
_ENTRIES = b"\x12"
_OFFSET = b"\x20"


def encode_send_responses(ids: Iterable[str], offsets: Iterable[int]) -> list[bytes]:
    """To each of several calls that have sent one message: its id, which is ASCII and no longer than `LONGEST_TEXT`,
    and its offset. As many as have one."""
    answers = []
    for id, offset in zip(ids, offsets, strict=False):
        raw, size = id.encode(), len(id)
        entry = b"%b\x12%c%b\x1a%c%b" % (_SENT_ENTRY, size, raw, size, raw)
        if offset:  # zero is not written
            entry += _OFFSET + varint(offset)
        answers.append(b"%b%b%b%b" % (_SENT, _ENTRIES, varint(len(entry)), entry))
    return answers


def encode_ack_response(entries: Iterable[tuple[str, str]]) -> bytes:
    """All went well: for each the id of the message and its receipt, as they were given."""
    results = [_ACKED]
    for id, handle in entries:
        told = text(b"\x12", handle) + _ACKED_ENTRY if handle else _ACKED_ENTRY
        results.append(field(_ENTRIES, text(b"\x0a", id) + told if id else told))
    return b"".join(results)


def encode_ack_entry_response(entry: bytes) -> bytes:
    """As `encode_ack_response`, to who has named one message in these bytes: its id, then its receipt."""
    return b"%b%b%b%b%b" % (_ACKED, _ENTRIES, varint(len(entry) + len(_ACKED_ENTRY)), entry, _ACKED_ENTRY)
