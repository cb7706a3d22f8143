"""SEND_MESSAGE (10), SEND_MESSAGE_V2 (310), SEND_BATCH_MESSAGE (320).

Appends a message, or a batch, to one queue at once and responds when it is durable. Creates an unknown topic after its
default topic, if that is inheritable. Stores a delayed message in the schedule topic until it is due, and a half
message in the half topic until its producer commits it or rolls it back."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import lru_cache, partial
from typing import NamedTuple, NoReturn

from trimq.core.api.commit_log_messages import OutgoingMessage
from trimq.core.commit_log.stream import MessageQueue
from trimq.core.commit_log.topics import INHERITABLE, CommitLogTopic, CommitLogTopicDefinition
from trimq.core.failures.ledger import Reason
from trimq.core.security.resources import Action
from trimq.errors import MessageTooLong, OtherHome, PropertiesTooLong, Refusal, UnknownTopic
from trimq.formats.rocketmq_unit.batch_body import read_batch
from trimq.formats.rocketmq_unit.dead_letters import TRANSACTIONAL
from trimq.formats.rocketmq_unit.hosts import offset_message_id, unique_key
from trimq.formats.rocketmq_unit.properties import (
    TAGS,
    UNIQUE_KEY,
    VALUE_ENDS,
    is_plain,
    read_properties,
    tags_code,
    write_properties,
)
from trimq.formats.rocketmq_unit.schedule import DELAY
from trimq.formats.rocketmq_unit.ttl import EXPIRY_PROPERTIES
from trimq.formats.rocketmq_unit.unit import (
    BORN_HOST_V6,
    LONGEST_PROPERTIES,
    LONGEST_SENT_PROPERTIES,
    STORE_HOST_V6,
    TRANSACTION_BITS,
    BadUnit,
    UnitDraft,
)
from trimq.protocols.contract import Parts, Reply
from trimq.protocols.rocketmq.handlers.context import Context
from trimq.protocols.rocketmq.handlers.message_ttl import apply_ttl, has_default_ttl
from trimq.protocols.rocketmq.handlers.plain_batch import send_plain_batch
from trimq.protocols.rocketmq.handlers.send_back import dead_letter_topic, must_dead_letter
from trimq.protocols.rocketmq.handlers.send_deduplication import (
    find_duplicates,
    given_id,
    is_deduplicated,
    reply_to_duplicate,
)
from trimq.protocols.rocketmq.handlers.send_foreign import send_foreign
from trimq.protocols.rocketmq.handlers.send_target import Obstacle, find_obstacle, queue_count
from trimq.protocols.rocketmq.handlers.topic_creation import after_topic_creation
from trimq.protocols.rocketmq.schedule.scheduler import DELAY_PROPERTIES
from trimq.protocols.rocketmq.state.sent_ids import SendResult
from trimq.protocols.rocketmq.state.system_topics import DLQ_PREFIX, RETRY_PREFIX
from trimq.protocols.rocketmq.wire.codes import RemotingRefusal, RequestCode, ResponseCode
from trimq.protocols.rocketmq.wire.headers import SendHeader, SendV2Header
from trimq.protocols.rocketmq.wire.replies import UNORDERED, refused_parts, reply_refused
from trimq.protocols.rocketmq.wire.responses import REGION, SENT_FIELDS, encode_send_response
from trimq.wire.extension import ONCE
from trimq.wire.remoting import Command

log = logging.getLogger(__name__)

LONGEST_TOPIC = 127

_ILLEGAL = "the message is illegal, maybe msg body or properties length not matched"
_HOST_BITS = BORN_HOST_V6 | STORE_HOST_V6


def send(context: Context, command: Command) -> Reply:
    header = command.read(SendHeader) if command.code == RequestCode.SEND_MESSAGE else command.read(SendV2Header)
    try:
        if not command.body:  # before the topic of the message is created
            raise RemotingRefusal(ResponseCode.MESSAGE_ILLEGAL, "the message body is empty")
        try:
            topic, stream = find_stream(context, header)
        except Refusal as refusal:
            if (foreign := context.foreign_topic(header.topic, Action.WRITE)) is None:
                if isinstance(refusal, OtherHome):  # the C++ client does not show the remark to the application
                    log.warning("RocketMQ client %s: send refused (%s)", context.caller.address, refusal)
                raise
            return send_foreign(context, command, header, foreign)
        is_dead = header.topic.startswith(RETRY_PREFIX) and must_dead_letter(context, command, header)
        if is_dead:
            topic = dead_letter_topic(context, header.topic.removeprefix(RETRY_PREFIX))
        if topic.creation is not None and (later := _send_later(context, command, topic)) is not None:
            return later
        if header.batch:
            return _send_batch(context, command, header, topic, stream)
        if (
            is_deduplicated(context, header.properties)
            and (known := reply_to_duplicate(context, command, header)) is not None
        ):
            return known
        if is_dead:
            header.properties += f"\x02{DELAY}\x01-1\x02"
            return _send_one(context, command, header, topic, topic.stream(0))
        return _send_one(context, command, header, topic, stream)
    except Refusal as refusal:
        context.services.counts.refused_write(type(refusal).__name__)
        return reply_refused(command, refusal, SENT_FIELDS)


def _send_later(context: Context, command: Command, topic: CommitLogTopic) -> Reply | None:
    def refuse(refusal: Refusal) -> Reply:
        context.services.counts.refused_write(type(refusal).__name__)
        return reply_refused(command, refusal, SENT_FIELDS)

    return after_topic_creation(context, topic, lambda: send(context, command), refuse)


def _send_one(
    context: Context, command: Command, header: SendHeader, topic: CommitLogTopic, stream: MessageQueue
) -> Reply:
    properties = read_properties(header.properties)
    queue_id = stream.id.number
    handle, code = "", tags_code(properties.get(TAGS, ""))
    written, target = None, topic
    if not has_default_ttl(topic.definition):
        written = _encode_plain_properties(context, header.properties, properties)
    if written is None:
        if _INNER_BATCH_COUNT in properties:
            raise RemotingRefusal(ResponseCode.MESSAGE_ILLEGAL, f"{_ILLEGAL}: {_INNER_BATCH_COUNT} without a batch")
        add_broker_properties(context, properties)
        apply_ttl(context, topic, properties)
        target, stream, code, handle = _find_target(context, header, topic, stream, code, properties)
        # A retry by a client was stored before: its properties may exceed the limit of new messages.
        is_again = header.topic.startswith(RETRY_PREFIX)
        written = encode_properties(properties, LONGEST_PROPERTIES if is_again else LONGEST_SENT_PROPERTIES)
    draft = make_draft(context, header, target, stream, command.body, header.flag, written)
    store_host = context.services.identity.store_host
    placed = context.commit_log.messages.append(context.caller, topic, stream, draft, code, store_host)
    if header.topic.startswith(RETRY_PREFIX) and topic.name.name.startswith(DLQ_PREFIX):
        context.commit_log.dead_letters.record_dead_letter(context.caller, topic, placed, draft, Reason.DELIVERY_LIMIT)
    context.services.traffic.count_sent(header.topic, placed.store_ms, len(command.body))
    ticket, offset = placed.ticket, placed.queue_offset
    id = offset_message_id(store_host, placed.position)
    unique = properties[UNIQUE_KEY]
    if is_deduplicated(context, header.properties) and given_id(header) is not None:
        context.services.sending.sent_ids.remember(
            header.topic, unique, SendResult(id, queue_id, offset, handle, ticket)
        )

    def build() -> Parts:
        if ticket.refusal is not None:
            return refused_parts(command, ticket.refusal, SENT_FIELDS)
        return encode_send_response(command.opaque, id, queue_id, offset, unique, handle)

    def late() -> Parts:
        return encode_send_response(
            command.opaque, id, queue_id, offset, unique, handle, ResponseCode.FLUSH_DISK_TIMEOUT
        )

    return context.services.sending.flush_timeouts.watch(
        ticket, Reply.when_durable(ticket.number, build, UNORDERED), late
    )


def _find_target(
    context: Context,
    header: SendHeader,
    topic: CommitLogTopic,
    stream: MessageQueue,
    code: int,
    properties: dict[str, str],
) -> tuple[CommitLogTopic, MessageQueue, int, str]:
    """Returns topic, queue, tags code and recall handle under which to store the message. Redirects a half message or a
    delayed message to its system topic and records the real target in its properties."""
    queue_id = stream.id.number
    if properties.get(TRANSACTIONAL, "").lower() == "true" and not header.topic.startswith(RETRY_PREFIX):
        half_topic, halves = context.services.sending.transactions.prepare(topic, queue_id, properties)
        header.sysFlag &= ~TRANSACTION_BITS
        return half_topic, halves, code, ""
    return context.services.sending.scheduler.postpone(topic, queue_id, properties) or (topic, stream, code, "")


def _send_batch(
    context: Context, command: Command, header: SendHeader, topic: CommitLogTopic, stream: MessageQueue
) -> Reply:
    """Stores all messages of the batch or none: every message is checked before the first is appended."""
    if header.topic.startswith(RETRY_PREFIX):
        raise RemotingRefusal(
            ResponseCode.MESSAGE_ILLEGAL, f"batch request does not support retry group {header.topic}"
        )
    outer = read_properties(header.properties)
    if DELAY in outer or outer.get(TRANSACTIONAL, "").lower() == "true":
        raise RemotingRefusal(ResponseCode.MESSAGE_ILLEGAL, f"{_ILLEGAL}: a batch cannot be delayed or transactional")
    if (reply := send_plain_batch(context, command, header, stream)) is not None:
        return reply
    batched = _read_batch(context, command, header, topic, stream)
    sent = store_batch(context, header.topic, batched)
    ids, queue_id, first = ",".join(each.id for each in sent), sent[0].queue_id, sent[0].queue_offset
    pending = [each.pending for each in sent if each.pending is not None]

    def build(code: int = ResponseCode.SUCCESS) -> Parts:
        refusal = next((each.refusal for each in pending if each.refusal is not None), None)
        if refusal is not None:
            return refused_parts(command, refusal, SENT_FIELDS)
        return encode_send_response(command.opaque, ids, queue_id, first, "", code=code)

    if not pending:
        return Reply.now(build(), UNORDERED)
    latest = max(pending, key=lambda each: each.number)
    reply = Reply.when_durable(latest.number, build, UNORDERED)
    return context.services.sending.flush_timeouts.join(latest, reply, partial(build, ResponseCode.FLUSH_DISK_TIMEOUT))


class BatchEntry(NamedTuple):
    """`id`: by which the message is deduplicated, if it is."""

    outgoing: OutgoingMessage
    id: str | None


def store_batch(context: Context, name: str, batched: Sequence[BatchEntry]) -> list[SendResult]:
    """Stores all messages or none. Returns the result of each message. Does not store a duplicate again."""
    services = context.services
    places = find_duplicates(context, name, [each.id for each in batched])
    outgoing: list[OutgoingMessage] = []
    for each, place in zip(batched, places, strict=True):
        if place == len(outgoing):
            outgoing.append(each.outgoing)
    store_host = services.identity.store_host
    placed = context.commit_log.messages.append_all(context.caller, outgoing, store_host) if outgoing else []
    fresh = []
    for new, went in zip(placed, outgoing, strict=True):
        services.traffic.count_sent(name, new.store_ms, new.size)
        id = offset_message_id(store_host, new.position)
        fresh.append(SendResult(id, went.stream.id.number, new.queue_offset, "", new.ticket))
    if placed:
        services.sending.flush_timeouts.begin(placed[-1].ticket)
    sent = [place if isinstance(place, SendResult) else fresh[place] for place in places]
    for each, answered in zip(batched, sent, strict=True):
        if each.id is not None:
            services.sending.sent_ids.remember(name, each.id, answered)
    return sent


def _read_batch(
    context: Context, command: Command, header: SendHeader, topic: CommitLogTopic, stream: MessageQueue
) -> list[BatchEntry]:
    try:
        batched = list(read_batch(command.body))
    except BadUnit as error:
        raise RemotingRefusal(ResponseCode.MESSAGE_ILLEGAL, f"{_ILLEGAL}: {error}") from None
    if not batched:
        raise RemotingRefusal(ResponseCode.MESSAGE_ILLEGAL, "the batch has no messages")
    if len(command.body) > context.services.settings.message_bytes:
        raise MessageTooLong(len(command.body), context.services.settings.message_bytes)
    read = []
    is_on = context.services.sending.sent_ids.is_on
    for flag, body, raw in batched:
        properties = read_properties(raw)
        apply_ttl(context, topic, properties)
        draft = make_draft(context, header, topic, stream, body, flag, encode_properties(properties))
        outgoing = OutgoingMessage(topic, stream, draft, tags_code(properties.get(TAGS, "")))
        is_once = is_on or ONCE in properties
        read.append(BatchEntry(outgoing, properties.get(UNIQUE_KEY) if is_once else None))
    return read


def make_draft(
    context: Context,
    header: SendHeader,
    topic: CommitLogTopic,
    stream: MessageQueue,
    body: bytes | bytearray | memoryview,
    flag: int,
    properties: bytes,
) -> UnitDraft:
    return UnitDraft(
        topic.raw_name,
        stream.id.number,
        body,
        properties,
        flag,
        header.sysFlag & ~_HOST_BITS,
        header.bornTimestamp,
        context.host,
        header.reconsumeTimes,
    )


# -- topic and queue


def find_stream(context: Context, header: SendHeader) -> tuple[CommitLogTopic, MessageQueue]:
    topic = context.commit_log.topics.find(context.caller, header.topic)
    if topic is None:
        check_topic_name(context, header.topic)
        topic = _create_topic(context, header)
    definition, queue_id = topic.definition, header.queueId
    obstacle = find_obstacle(header.topic, definition)
    if obstacle is not None or queue_id >= queue_count(definition):
        _refuse_target(header, definition, obstacle)
    if queue_id < 0:
        queue_id = context.services.rng.randrange(definition.write_streams)
    return topic, topic.stream(queue_id)


def _refuse_target(header: SendHeader, definition: CommitLogTopicDefinition, obstacle: Obstacle | None) -> NoReturn:
    if obstacle is Obstacle.BROKER_ONLY:
        raise RemotingRefusal(ResponseCode.NO_PERMISSION, f"Sending message to topic[{header.topic}] is forbidden.")
    if obstacle is Obstacle.NOT_WRITABLE:
        raise RemotingRefusal(ResponseCode.NO_PERMISSION, f"the topic[{header.topic}] sending message is forbidden")
    counts = f"readQueueNums={definition.read_streams}, writeQueueNums={definition.write_streams}"
    reason = f"request queueId[{header.queueId}] is illegal, TopicConfig [topicName={header.topic}, {counts}]"
    raise RemotingRefusal(ResponseCode.INVALID_PARAMETER, reason)


def check_topic_name(context: Context, name: str) -> None:
    if not name.strip():
        raise RemotingRefusal(ResponseCode.INVALID_PARAMETER, "The specified topic is blank.")
    if len(name) > LONGEST_TOPIC:
        reason = f"The specified topic: {name[:200]}, is longer than topic max length {LONGEST_TOPIC}."
        raise RemotingRefusal(ResponseCode.INVALID_PARAMETER, reason)
    context.commit_log.topics.check_name(name)


def _create_topic(context: Context, header: SendHeader) -> CommitLogTopic:
    """Creates a topic after its default topic, with at most as many queues. Retry topics need no default topic."""
    name = header.topic
    if name.startswith(RETRY_PREFIX):
        definition = CommitLogTopicDefinition(context.caller.namespace, name, 1, 1)
    else:
        pattern = context.commit_log.topics.find(context.caller, header.defaultTopic)
        if (
            pattern is None
            or not pattern.definition.permissions & INHERITABLE
            or not context.services.settings.auto_create_topics
        ):
            _refuse_unknown(context, name)
        assert pattern is not None
        count = max(min(header.defaultTopicQueueNums, pattern.definition.write_streams), 0)
        permissions = pattern.definition.permissions & ~INHERITABLE
        definition = CommitLogTopicDefinition(context.caller.namespace, name, count, count, permissions)
    return context.commit_log.topics.create(context.caller, definition)[0]


def _refuse_unknown(context: Context, name: str) -> None:
    try:
        context.commit_log.topics.get(context.caller, name)
    except UnknownTopic:
        raise RemotingRefusal(ResponseCode.TOPIC_NOT_EXIST, f"topic[{name}] not exist, apply first please!") from None
    except OtherHome as refusal:
        log.warning("RocketMQ client %s: send refused (%s)", context.caller.address, refusal)
        raise RemotingRefusal(ResponseCode.NO_PERMISSION, str(refusal)) from None


# -- properties


def add_broker_properties(context: Context, properties: dict[str, str]) -> dict[str, str]:
    """Adds the broker's properties to those of the producer: region, trace switch, cluster, and a unique key if there
    is none."""
    properties.pop("POP_CK", None)
    if UNIQUE_KEY not in properties:
        properties[UNIQUE_KEY] = _new_unique_key(context)
    properties.setdefault("MSG_REGION", REGION)
    properties.setdefault("TRACE_ON", "true")
    properties["CLUSTER"] = context.services.identity.cluster_name
    return properties


_BROKERS_OWN = ("MSG_REGION", "TRACE_ON", "CLUSTER", "POP_CK")
_INNER_BATCH_COUNT = "INNER_NUM"  # only messages of a batch consume queue have it; those are not served

SPECIAL_PROPERTIES = frozenset(
    (*_BROKERS_OWN, TRANSACTIONAL, _INNER_BATCH_COUNT, ONCE, *DELAY_PROPERTIES, *EXPIRY_PROPERTIES)
)


def _encode_plain_properties(context: Context, text: str, properties: dict[str, str]) -> bytes | None:
    """Fast path of `add_broker_properties` and `encode_properties` for messages without special properties: appends the
    broker's properties to the received text. Returns None when the message needs the full path."""
    if UNIQUE_KEY not in properties or not SPECIAL_PROPERTIES.isdisjoint(properties) or not is_plain(text, properties):
        return None
    separator = "" if text.endswith(VALUE_ENDS) else VALUE_ENDS
    written = f"{text}{separator}{added_properties(context.services.identity.cluster_name)}".encode("utf-8", "replace")
    return written if len(written) <= LONGEST_SENT_PROPERTIES else None


@lru_cache(maxsize=1)
def added_properties(cluster_name: str) -> str:
    """Encodes the properties that the broker adds to every message."""
    return write_properties({"MSG_REGION": REGION, "TRACE_ON": "true", "CLUSTER": cluster_name}).decode()


def encode_properties(properties: dict[str, str], limit: int = LONGEST_SENT_PROPERTIES) -> bytes:
    try:
        written = write_properties(properties)
    except ValueError as error:
        raise RemotingRefusal(ResponseCode.MESSAGE_ILLEGAL, f"{_ILLEGAL}: {error}") from None
    if len(written) > limit:
        raise PropertiesTooLong(len(written), limit)
    return written


def _new_unique_key(context: Context) -> str:
    services = context.services
    rng = services.rng.getrandbits(64)
    now_ms = services.clock.message.now_ms()
    return unique_key(services.identity.store_host, rng >> 48, rng, now_ms, rng >> 32)
