"""SendMessage: one message, or several of one topic.

Appends messages at once and responds when they are durable. The broker chooses the queue: by message group, otherwise
at random, and then the same queue for all messages of a request. Stores all messages of a request or none; each has its
own entry in the response. The bodies of one request together are limited like one body. As in Apache RocketMQ's proxy,
several messages may not include delayed or half messages (response code 50001).

Not served: lite topics, priorities."""

from __future__ import annotations

import hashlib
import zlib
from contextlib import suppress
from typing import Any, NamedTuple

from trimq.core.api.commit_log_messages import OutgoingMessage
from trimq.core.commit_log.stream import MessageQueue
from trimq.core.commit_log.topics import CommitLogTopic
from trimq.core.crossing.units import UnitTopic
from trimq.core.security.access import Action
from trimq.errors import Refusal, UnknownTopic
from trimq.formats.crossing import rocketmq
from trimq.formats.crossing.rocketmq import UnitFields
from trimq.formats.rocketmq_unit.dead_letters import PRODUCER_GROUP, TRANSACTIONAL
from trimq.formats.rocketmq_unit.hosts import offset_message_id
from trimq.formats.rocketmq_unit.properties import KEYS, TAGS, UNIQUE_KEY, java_hash, tags_code
from trimq.formats.rocketmq_unit.unit import COMPRESSED, UnitDraft
from trimq.protocols.contract import Parts, Reply
from trimq.protocols.rocketmq.grpc.clients.call import Call, refusal_status, reply, reply_when_durable, status
from trimq.protocols.rocketmq.grpc.clients.message_view import (
    BORN_HOST,
    BORN_MS,
    DELIVER_MS,
    MESSAGE_GROUP,
    RESERVED,
    TRACE_CONTEXT,
    message_type_of,
    read_ms,
)
from trimq.protocols.rocketmq.grpc.clients.name_rules import check_topic
from trimq.protocols.rocketmq.grpc.clients.text_rules import has_control, is_blank
from trimq.protocols.rocketmq.grpc.handlers.route import accepted_type
from trimq.protocols.rocketmq.grpc.wire import wire
from trimq.protocols.rocketmq.grpc.wire.codes import GrpcRefusal
from trimq.protocols.rocketmq.grpc.wire.enums import Code, DigestType, Encoding, MessageType
from trimq.protocols.rocketmq.handlers.message_ttl import apply_ttl
from trimq.protocols.rocketmq.handlers.send import BatchEntry, add_broker_properties, encode_properties, store_batch
from trimq.protocols.rocketmq.handlers.send_deduplication import find_earlier_send
from trimq.protocols.rocketmq.handlers.send_target import find_obstacle
from trimq.protocols.rocketmq.state.sent_ids import SendResult
from trimq.protocols.rocketmq.state.system_topics import RETRY_PREFIX
from trimq.protocols.rocketmq.transactions.check_back import IMMUNITY_S
from trimq.wire.extension import ONCE

_OK = status()
_MAX_PROPERTIES = 128
MAX_PROPERTY_BYTES = 16 * 1024
_LONGEST_GROUP = 64
_LONGEST_RECOVERY_S = 3600
# Properties of a message that a unit has fields for, or that only say how a client sent it.
_ADDED = frozenset((PRODUCER_GROUP, "RECONSUME_TIME", BORN_MS, BORN_HOST))
LATEST_MS = 253_402_300_799_999  # end of the year 9999, the last protobuf Timestamp


class _Checked(NamedTuple):
    """Message that passed all checks, with its properties."""

    message: Any
    properties: dict[str, str]


def send(call: Call, request: Any) -> Reply:
    try:
        topic, checked = _check(call, request.messages)
        if isinstance(topic, UnitTopic):
            return _send_foreign(call, topic, checked)
        stored = [_store_once(call, topic, checked[0])] if len(checked) == 1 else _store_batch(call, topic, checked)
    except Refusal as refusal:
        call.services.counts.refused_write(type(refusal).__name__)
        raise
    sent = [(each.properties[UNIQUE_KEY], answered) for each, answered in zip(checked, stored, strict=True)]
    pending = [each.pending for each in stored if each.pending is not None]

    def build(refusal: Refusal | None) -> Any:
        if refusal is not None:
            return wire.SendMessageResponse(status=refusal_status(refusal))
        answer = wire.SendMessageResponse(status=_OK)
        for id, each in sent:
            answer.entries.add(
                status=_OK,
                message_id=id,
                transaction_id=id,
                offset=each.queue_offset,
                recall_handle=each.recall_handle,
            )
        return answer

    if not pending:
        return reply(build(None))
    latest = pending[0] if len(pending) == 1 else max(pending, key=lambda each: each.number)
    return call.services.sending.flush_timeouts.join(
        latest, reply_when_durable(pending, build), lambda: flush_timeout_response(len(sent))
    )


def _send_foreign(call: Call, topic: UnitTopic, checked: list[_Checked]) -> Reply:
    """Sends to a topic of another layout: plain messages, which the broker puts into one queue."""
    services, count = call.services, topic.definition.write_streams
    if not count:
        raise GrpcRefusal(Code.FORBIDDEN, f"the topic {topic.name.name} has no writable queue")
    number = services.rng.randrange(count)
    units = []
    for message, properties in checked:
        is_compressed = message.system_properties.body_encoding == Encoding.GZIP
        body = rocketmq.expanded_body(message.body, COMPRESSED if is_compressed else 0, services.settings.message_bytes)
        own = {name: value for name, value in properties.items() if name not in _ADDED}
        units.append(UnitFields(body, own, int(properties[BORN_MS]), 0, 0, call.host))
    messages = [rocketmq.sent_to_neutral(unit) for unit in units]
    placed = services.foreign_topics.append(call.caller, topic.foreign, number, messages)
    now_ms = services.clock.message.now_ms()
    for unit in units:
        services.traffic.count_sent(topic.name.name, now_ms, len(unit.body))

    def build(refusal: Refusal | None) -> Any:
        if refusal is not None:
            return wire.SendMessageResponse(status=refusal_status(refusal))
        answer = wire.SendMessageResponse(status=_OK)
        for index, each in enumerate(checked):
            offset = placed.base_offset + index
            unique = each.properties[UNIQUE_KEY]
            answer.entries.add(status=_OK, message_id=unique, transaction_id=unique, offset=offset)
        return answer

    return reply_when_durable(placed.tickets, build)


def flush_timeout_response(count: int) -> Parts:
    """Response to messages that are not durable in time. They stay stored; as in Apache RocketMQ's proxy, the response
    has no message ids."""
    code = Code.MASTER_PERSISTENCE_TIMEOUT
    reason = "send message failed, sendStatus=FLUSH_DISK_TIMEOUT"
    entries = [wire.SendResultEntry(status=status(code, reason)) for _ in range(count)]
    return [wire.SendMessageResponse(status=status(code, code.name), entries=entries).SerializeToString()]


def _check(call: Call, messages: Any) -> tuple[CommitLogTopic | UnitTopic, list[_Checked]]:
    if not messages:
        raise GrpcRefusal(Code.MESSAGE_CORRUPTED, "no message to send")
    name = messages[0].topic.name
    if len(messages) > 1 and any(message.topic != messages[0].topic for message in messages):
        raise GrpcRefusal(Code.MESSAGE_CORRUPTED, "topic in message is not same")
    check_topic(call, name)
    checked = [_Checked(message, _properties_of(call, message)) for message in messages]
    if name.startswith(RETRY_PREFIX):
        raise GrpcRefusal(Code.INTERNAL_SERVER_ERROR, "sending to a retry topic is forbidden: only the broker does so")
    topic: CommitLogTopic | UnitTopic | None = call.commit_log.topics.find(call.caller, name)
    if topic is None:
        topic = call.foreign_topic(name, Action.WRITE)
    if topic is None:
        with suppress(UnknownTopic):  # answered below, as Apache RocketMQ's proxy does
            call.commit_log.topics.get(call.caller, name)
    expected = MessageType.MESSAGE_TYPE_UNSPECIFIED if topic is None else accepted_type(topic.definition)
    for each in checked:
        kind = message_type_of(each.properties)
        if kind is not expected:
            reason = f"the topic accepts messages of type {expected.name}, but this message is of type {kind.name}"
            raise GrpcRefusal(Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE, reason)
    assert topic is not None, "message_type_of never returns MESSAGE_TYPE_UNSPECIFIED"
    if isinstance(topic, CommitLogTopic) and find_obstacle(name, topic.definition) is not None:
        raise GrpcRefusal(Code.FORBIDDEN, f"the topic {name} has no writable queue")
    return topic, checked


def _store_once(call: Call, topic: CommitLogTopic, checked: _Checked) -> SendResult:
    """Stores a message, unless it is deduplicated and a message with its id was stored before."""
    repeats, name, id = call.services.sending.sent_ids, topic.name.name, checked.properties[UNIQUE_KEY]
    is_once = repeats.is_on or ONCE in checked.properties
    known = find_earlier_send(call, name, id, checked.properties) if is_once else None
    if known is not None:
        return known
    sent = _store(call, topic, checked)
    if is_once:
        repeats.remember(name, id, sent)
    return sent


def _store(call: Call, topic: CommitLogTopic, checked: _Checked) -> SendResult:
    message, properties = checked
    services = call.services
    stream = topic.stream(_choose_queue(call, topic, properties.get(MESSAGE_GROUP)))
    queue_id = stream.id.number
    properties = add_broker_properties(call, properties)
    apply_ttl(call, topic, properties)
    code, handle, target = tags_code(properties.get(TAGS, "")), "", topic
    if TRANSACTIONAL in properties:
        target, stream = services.sending.transactions.prepare(topic, queue_id, properties)
    elif (
        DELIVER_MS in properties
        and (waiting := services.sending.scheduler.postpone(topic, queue_id, properties)) is not None
    ):
        target, stream, code, handle = waiting
    draft = _draft(call, target, stream, message, properties)
    placed = call.commit_log.messages.append(call.caller, topic, stream, draft, code, services.identity.store_host)
    services.traffic.count_sent(topic.name.name, placed.store_ms, len(message.body))
    services.sending.flush_timeouts.begin(placed.ticket)
    id = offset_message_id(services.identity.store_host, placed.position)
    return SendResult(id, queue_id, placed.queue_offset, handle, placed.ticket)


def _draft(
    call: Call, target: CommitLogTopic, stream: MessageQueue, message: Any, properties: dict[str, str]
) -> UnitDraft:
    return UnitDraft(
        target.raw_name,
        stream.id.number,
        message.body,
        encode_properties(properties),
        0,
        COMPRESSED if message.system_properties.body_encoding == Encoding.GZIP else 0,
        int(properties[BORN_MS]),
        call.host,
    )


def _store_batch(call: Call, topic: CommitLogTopic, checked: list[_Checked]) -> list[SendResult]:
    """Stores messages as a remoting batch: the broker adds no properties."""
    limit = call.services.settings.message_bytes
    if sum(len(each.message.body) for each in checked) > limit:
        raise GrpcRefusal(Code.INTERNAL_SERVER_ERROR, f"messages sent together cannot exceed {limit} bytes")
    any_queue = call.services.rng.randrange(topic.definition.write_streams)
    batched = []
    for message, properties in checked:
        if TRANSACTIONAL in properties or DELIVER_MS in properties:
            reason = "a delayed or transactional message cannot be sent together with other messages"
            raise GrpcRefusal(Code.INTERNAL_SERVER_ERROR, reason)
        apply_ttl(call, topic, properties)
        group = properties.get(MESSAGE_GROUP)
        stream = topic.stream(any_queue if group is None else queue_of_group(group, topic.definition.write_streams))
        draft = _draft(call, topic, stream, message, properties)
        outgoing = OutgoingMessage(topic, stream, draft, tags_code(properties.get(TAGS, "")))
        is_once = call.services.sending.sent_ids.is_on or ONCE in properties
        batched.append(BatchEntry(outgoing, properties[UNIQUE_KEY] if is_once else None))
    return store_batch(call, topic.name.name, batched)


def _choose_queue(call: Call, topic: CommitLogTopic, group: str | None) -> int:
    count = topic.definition.write_streams
    return int(call.services.rng.random() * count) if group is None else queue_of_group(group, count)


def queue_of_group(group: str, count: int) -> int:
    """Returns the queue of a message group: Guava's consistent hash of Java's String.hashCode, as in Apache RocketMQ's
    proxy, so that both choose the same queue for a group."""
    state = java_hash(group)
    chosen = 0
    while True:
        state = (2862933555777941757 * state + 1) & 0xFFFFFFFFFFFFFFFF
        following = int((chosen + 1) / (((state >> 33) + 1) / 2147483648.0))
        if not 0 <= following < count:
            return chosen
        chosen = following


# -- properties


def _properties_of(call: Call, message: Any) -> dict[str, str]:
    system = message.system_properties
    _check_body(call, message)
    properties = user_properties(message)
    labels: dict[str, str] = {}
    add_labels(labels, system)
    _check_size(message)
    if is_blank(system.message_id):
        raise GrpcRefusal(Code.ILLEGAL_MESSAGE_ID, "message id cannot be empty")
    properties[UNIQUE_KEY] = system.message_id
    properties[PRODUCER_GROUP] = message.topic.name
    properties["RECONSUME_TIME"] = str(system.delivery_attempt)
    now_ms = call.services.clock.message.now_ms()
    born_ms = max(read_ms(system.born_timestamp), 0) or now_ms
    if born_ms > LATEST_MS:
        raise GrpcRefusal(Code.BAD_REQUEST, f"born_timestamp out of range: {born_ms}")
    properties[BORN_MS] = str(born_ms)
    properties[BORN_HOST] = call.caller.address if is_blank(system.born_host) else system.born_host
    if system.trace_context:
        properties[TRACE_CONTEXT] = system.trace_context
    kind = _kind_properties(call, system, now_ms)
    add_message_group(labels, system)
    return properties | labels | kind


def _check_body(call: Call, message: Any) -> None:
    limit = call.services.settings.message_bytes
    if not message.body:
        raise GrpcRefusal(Code.MESSAGE_BODY_EMPTY, "message body cannot be empty")
    if len(message.body) > limit:
        raise GrpcRefusal(Code.MESSAGE_BODY_TOO_LARGE, f"message body cannot exceed {limit} bytes")
    check_digest(message.system_properties.body_digest, message.body)


def check_digest(digest: Any, body: bytes) -> None:
    if digest.checksum and digest.checksum.upper() not in _checksums(digest.type, body):
        raise GrpcRefusal(Code.MESSAGE_CORRUPTED, "the checksum of the body differs from its digest")


def _checksums(kind: int, body: bytes) -> tuple[str, ...]:
    """Returns the accepted spellings of the checksum: clients write CRC32 in different ways."""
    if kind == DigestType.MD5:
        return (hashlib.md5(body, usedforsecurity=False).hexdigest().upper(),)
    if kind == DigestType.SHA1:
        return (hashlib.sha1(body, usedforsecurity=False).hexdigest().upper(),)
    if kind == DigestType.CRC32:
        number = zlib.crc32(body)
        return (f"{number:08X}", f"{number:X}", str(number))
    raise GrpcRefusal(Code.MESSAGE_CORRUPTED, f"digest type {kind} is not supported")


def user_properties(message: Any) -> dict[str, str]:
    if not message.user_properties:
        return {}
    properties: dict[str, str] = dict(message.user_properties)
    if len(properties) > _MAX_PROPERTIES:
        raise GrpcRefusal(
            Code.MESSAGE_PROPERTIES_TOO_LARGE, f"{len(properties)} user properties, the limit is {_MAX_PROPERTIES}"
        )
    for name, value in properties.items():
        if name in RESERVED:
            raise GrpcRefusal(Code.ILLEGAL_MESSAGE_PROPERTY_KEY, f"the property {name} is reserved by the system")
        if not name or has_control(name) or has_control(value):
            raise GrpcRefusal(
                Code.ILLEGAL_MESSAGE_PROPERTY_KEY,
                f"the property {name[:80]!r} has an empty name or a control character",
            )
    return properties


def _check_size(message: Any) -> None:
    system = message.system_properties
    texts = [*message.user_properties, *message.user_properties.values(), *system.keys, system.tag]
    size = sum(len(text.encode()) for text in texts)
    if size > MAX_PROPERTY_BYTES:
        reason = f"user properties, tag and keys have {size} bytes, the limit is {MAX_PROPERTY_BYTES}"
        raise GrpcRefusal(Code.MESSAGE_PROPERTIES_TOO_LARGE, reason)


def add_labels(properties: dict[str, str], system: Any) -> None:
    tag = system.tag
    if tag:
        if "|" in tag or is_blank(tag) or has_control(tag):
            raise GrpcRefusal(
                Code.ILLEGAL_MESSAGE_TAG, f"the tag {tag[:80]!r} is blank, or has a | or a control character"
            )
        properties[TAGS] = tag
    if keys := system.keys:
        for key in keys:
            if key and (is_blank(key) or has_control(key)):
                raise GrpcRefusal(Code.ILLEGAL_MESSAGE_KEY, f"the key {key[:80]!r} is blank or has a control character")
        if joined := " ".join(filter(None, keys)):  # clients pass on an empty key
            properties[KEYS] = joined


def add_message_group(properties: dict[str, str], system: Any) -> None:
    group = system.message_group
    if not group:
        return
    if is_blank(group) or has_control(group):
        raise GrpcRefusal(Code.ILLEGAL_MESSAGE_GROUP, "message group cannot be blank or have control characters")
    if len(group.encode()) >= _LONGEST_GROUP:
        raise GrpcRefusal(Code.ILLEGAL_MESSAGE_GROUP, f"message group exceed the max size {_LONGEST_GROUP}")
    properties[MESSAGE_GROUP] = group


def _kind_properties(call: Call, system: Any, now_ms: int) -> dict[str, str]:
    """Returns the properties of half and delayed messages. The type follows from the properties; only a half message
    declares its type."""
    properties: dict[str, str] = {}
    if system.HasField("lite_topic") or system.HasField("priority"):
        raise GrpcRefusal(Code.UNSUPPORTED, "lite topics and message priorities are not supported")
    if system.message_type == MessageType.TRANSACTION:
        properties[TRANSACTIONAL] = "true"
        if system.HasField("orphaned_transaction_recovery_duration"):
            seconds = system.orphaned_transaction_recovery_duration.seconds
            if seconds > _LONGEST_RECOVERY_S:
                raise GrpcRefusal(
                    Code.BAD_REQUEST, f"orphaned_transaction_recovery_duration must be at most {_LONGEST_RECOVERY_S} s"
                )
            properties[IMMUNITY_S] = str(seconds)
    if system.HasField("delivery_timestamp"):
        due_ms, limit_ms = read_ms(system.delivery_timestamp), call.services.settings.max_delay_ms
        if due_ms - now_ms > limit_ms:
            reason = f"the max delay time of message is too large, max is {limit_ms}"
            raise GrpcRefusal(Code.ILLEGAL_DELIVERY_TIME, reason)
        properties[DELIVER_MS] = str(due_ms)
    return properties
