"""Ledger entries of messages from AMQP queues: each message as its queue's log stored it, with the reason of the
failure before its body. Adding many messages at once costs little more than adding one. Pure: contents in, contents
out.

| format u8 | head length u16 | offset i64 | published i64 | head: fields that the batch has in common | body |
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
from trimq.formats.amqp_content.content import Content, StoredContent, to_record
from trimq.model import SYSTEM, Record, StreamId, TopicName

_FORM = 1
_PREFIX = Struct(">BHqq")
_pack = _PREFIX.pack
_new_tuple = tuple.__new__  # half the time of a NamedTuple's constructor; called for every message


class FailedBatch(msgspec.Struct, array_like=True, frozen=True):
    """Fields common to all messages that one queue failed at one time."""

    reason: str
    namespace: str
    queue: str
    queue_id: bytes
    attempts: int
    time_ms: int


def encode_failed_batch(failed_batch: FailedBatch, batch: Sequence[StoredContent]) -> list[Content]:
    head = msgspec.msgpack.encode(failed_batch)
    size, time_ms = len(head), failed_batch.time_ms
    contents: list[Content] = []
    for offset, _, _, (exchange, key, header, body, published_ms) in batch:
        entry_body = _pack(_FORM, size, offset, published_ms) + head + body
        contents.append(_new_tuple(Content, (exchange, key, header, entry_body, time_ms)))
    return contents


def is_of_failed_batch(content: Content) -> bool:
    """All other entries have only a body."""
    return bool(content.header)


def read_failed_message(content: Content, id: int) -> Record:
    """Returns the entry as a record of the ledger. Raises InvalidRecords if it is damaged."""
    try:
        form, size, offset, published_ms = _PREFIX.unpack_from(content.body)
        end = _PREFIX.size + size
        failed_batch = msgspec.msgpack.decode(content.body[_PREFIX.size : end], type=FailedBatch)
        stream = StreamId(UUID(bytes=failed_batch.queue_id), 0)
        reason = Reason(failed_batch.reason)
    except (UnpackError, ValueError) as error:
        raise InvalidRecords(f"the failure ledger has a damaged entry at {id}: {error}") from error
    if form != _FORM:
        raise InvalidRecords(f"the failure ledger has an entry of an unknown format at {id}")
    message = to_record(content._replace(body=content.body[end:], published_ms=published_ms), offset)
    origin = Origin(TopicName(failed_batch.namespace, failed_batch.queue), stream, offset)
    entry = FailureEntry(message, reason, origin, failed_batch.attempts, failed_batch.time_ms, SYSTEM.principal)
    return replace(to_entry(entry), offset=id)
