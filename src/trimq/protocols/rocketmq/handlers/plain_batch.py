"""SEND_BATCH_MESSAGE (320): fast path of `send` for a batch whose messages are plain. Stores them in one step. Falls
back to `send`, which has the refusals too, for every batch that is not plain."""

from __future__ import annotations

from typing import NamedTuple

from trimq.core.commit_log.stream import MessageQueue
from trimq.core.commit_log.topics import CommitLogTopic
from trimq.formats.rocketmq_unit.batch_body import read_batch
from trimq.formats.rocketmq_unit.batch_encoder import BatchMessage, checksum
from trimq.formats.rocketmq_unit.hosts import offset_message_id
from trimq.formats.rocketmq_unit.unit import (
    BORN_HOST_V6,
    LONGEST_SENT_PROPERTIES,
    STORE_HOST_V6,
    TRANSACTION_BITS,
    BadUnit,
)
from trimq.protocols.contract import Parts, Reply
from trimq.protocols.rocketmq.handlers.context import Context
from trimq.protocols.rocketmq.handlers.send_target import resolve_plain
from trimq.protocols.rocketmq.wire.codes import ResponseCode
from trimq.protocols.rocketmq.wire.headers import SendHeader
from trimq.protocols.rocketmq.wire.replies import UNORDERED, refused_parts
from trimq.protocols.rocketmq.wire.responses import SENT_FIELDS, encode_send_response
from trimq.wire.remoting import Command

_HOST_BITS = BORN_HOST_V6 | STORE_HOST_V6


class _PlainBatch(NamedTuple):
    messages: list[BatchMessage]
    keys: list[str]
    more_keys: dict[int, str]


def send_plain_batch(context: Context, command: Command, header: SendHeader, stream: MessageQueue) -> Reply | None:
    """Stores all messages of the batch. Returns None, and stores nothing, if it is not plain. Raises a Refusal as the
    slow path does."""
    topic = resolve_plain(context, header.topic)
    if (
        topic is None
        or header.sysFlag & TRANSACTION_BITS
        or len(command.body) > context.services.settings.message_bytes
    ):
        return None
    read = _read_plain(context, command, header, stream)
    if read is None:
        return None
    return _store(context, command, header, topic, stream, read)


def _read_plain(context: Context, command: Command, header: SendHeader, stream: MessageQueue) -> _PlainBatch | None:
    read_properties = context.services.sending.batch_templates.read
    lane, host, longest = stream.lane, context.host, context.commit_log.messages.message_bytes
    facts = header.sysFlag & ~_HOST_BITS, header.bornTimestamp, header.reconsumeTimes
    messages: list[BatchMessage] = []
    keys: list[str] = []
    more_keys: dict[int, str] = {}
    try:
        for flag, body, raw in read_batch(command.body):
            properties = read_properties(raw.decode("utf-8", "replace"))
            if properties is None or len(body) > longest:
                return None
            unique, written, code, more = properties
            if len(written) > LONGEST_SENT_PROPERTIES:
                return None
            if more is not None:
                more_keys[len(keys)] = more
            messages.append((lane, body, written, flag, *facts, code, checksum(body), host))
            keys.append(unique)
    except BadUnit:
        return None
    return _PlainBatch(messages, keys, more_keys) if messages else None


def _store(
    context: Context,
    command: Command,
    header: SendHeader,
    topic: CommitLogTopic,
    stream: MessageQueue,
    read: _PlainBatch,
) -> Reply:
    services = context.services
    store_host = services.identity.store_host
    append = context.commit_log.messages.append_whole_batch
    (places, store_ms, ticket, _), size = append(context.caller, topic, stream, *read, store_host)
    services.traffic.count_sent(header.topic, store_ms, size, len(places))
    ids = ",".join([offset_message_id(store_host, position) for _, position in places])
    queue_id, first = stream.id.number, places[0][0]

    def build() -> Parts:
        if ticket.refusal is not None:
            return refused_parts(command, ticket.refusal, SENT_FIELDS)
        return encode_send_response(command.opaque, ids, queue_id, first, "")

    def late() -> Parts:
        return encode_send_response(command.opaque, ids, queue_id, first, "", code=ResponseCode.FLUSH_DISK_TIMEOUT)

    return services.sending.flush_timeouts.watch(ticket, Reply.when_durable(ticket.number, build, UNORDERED), late)
