"""Messages of queues in the ledger of failures: each as its queue's log had it, and before its body what became of it.
So those that are given up together take little more work than one. Pure: contents in, contents out.

| form u8 | head u16 | offset i64 | published i64 | head: what all of a row have in common | body |
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from struct import Struct
from struct import error as UnpackError
from uuid import UUID

import msgspec

from trimq.core.failures.ledger import FailureEntry, Origin, Reason
from trimq.core.failures.ledger import to_record as to_entry
from trimq.errors import InvalidRecords
from trimq.formats.amqp_content.content import Content, Stored, to_record
from trimq.model import SYSTEM, Record, StreamId, TopicName

_FORM = 1
_PREFIX = Struct(">BHqq")
_pack = _PREFIX.pack
_new_tuple = tuple.__new__  # half the time of a NamedTuple's own constructor, for every message


class Row(msgspec.Struct, array_like=True, frozen=True):
    """What is said of all messages that one queue gave up at one time."""

    reason: str
    namespace: str
    queue: str
    queue_id: bytes
    attempts: int
    time_ms: int


def encode_row(row: Row, run: Sequence[Stored]) -> list[Content]:
    head = msgspec.msgpack.encode(row)
    size, time_ms = len(head), row.time_ms
    contents: list[Content] = []
    for offset, _, _, (exchange, key, header, body, published_ms) in run:
        told = _pack(_FORM, size, offset, published_ms) + head + body
        contents.append(_new_tuple(Content, (exchange, key, header, told, time_ms)))
    return contents


def is_of_row(content: Content) -> bool:
    """All other entries have nothing but a body."""
    return bool(content.header)


def read_row(content: Content, id: int) -> Record:
    """The record of an entry, as the ledger's readers know it. InvalidRecords: it is none."""
    try:
        form, size, offset, published_ms = _PREFIX.unpack_from(content.body)
        end = _PREFIX.size + size
        row = msgspec.msgpack.decode(content.body[_PREFIX.size : end], type=Row)
        stream = StreamId(UUID(bytes=row.queue_id), 0)
        reason = Reason(row.reason)
    except (UnpackError, ValueError) as error:
        raise InvalidRecords(f"the failure ledger has a damaged entry at {id}: {error}") from error
    if form != _FORM:
        raise InvalidRecords(f"the failure ledger has an entry of an unknown form at {id}")
    message = to_record(content._replace(body=content.body[end:], published_ms=published_ms), offset)
    origin = Origin(TopicName(row.namespace, row.queue), stream, offset)
    entry = FailureEntry(message, reason, origin, row.attempts, row.time_ms, SYSTEM.principal)
    return replace(to_entry(entry), offset=id)
