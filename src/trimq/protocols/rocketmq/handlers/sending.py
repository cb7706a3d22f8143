"""Codes 10, 310 and 320: a message, or a batch of them, for one queue.

The message gets its place now and is answered when that is durable. A topic that does not exist is made after its
default topic, if that may be inherited.
A message that is to come later waits in a topic of the broker's own until it is due.
A half, whose producer decides later whether it counts, waits in another. Not served: replies."""

from __future__ import annotations

from collections.abc import Sequence

from trimq.core.shared_streams import SharedStream
from trimq.core.shared_topics import INHERITABLE, SharedDefinition, SharedTopic
from trimq.errors import MessageTooLong, OtherHome, PropertiesTooLong, Refusal, UnknownTopic
from trimq.formats.unit import BORN_HOST_V6, LONGEST_PROPERTIES, STORE_HOST_V6, TRANSACTION_BITS, BadUnit, Draft
from trimq.formats.unit_batch import read_batch
from trimq.formats.unit_hosts import offset_message_id, unique_key
from trimq.formats.unit_properties import TAGS, UNIQUE_KEY, read_properties, tags_code, write_properties
from trimq.formats.unit_schedule import DELAY
from trimq.protocols.contract import Parts, Reply
from trimq.protocols.rocketmq.answers import REGION, SENT_FIELDS, answer_sent
from trimq.protocols.rocketmq.codes import Code, Failure, Request
from trimq.protocols.rocketmq.handlers.context import Context
from trimq.protocols.rocketmq.handlers.replies import UNORDERED, refused_parts, reply_refused
from trimq.protocols.rocketmq.handlers.retrying import dead_letters, is_given_up
from trimq.protocols.rocketmq.headers import Send, SendV2
from trimq.protocols.rocketmq.remoting import Command
from trimq.protocols.rocketmq.system_topics import FORBIDDEN, RETRY_PREFIX
from trimq.protocols.rocketmq.transactions import TRANSACTIONAL

LONGEST_TOPIC = 127

_ILLEGAL = "the message is illegal, maybe msg body or properties length not matched"
_HOST_BITS = BORN_HOST_V6 | STORE_HOST_V6


def send(context: Context, command: Command) -> Reply:
    header = command.read(Send) if command.code == Request.SEND_MESSAGE else command.read(SendV2).spelled_out()
    try:
        topic, stream = _find_stream(context, header)
        if header.batch:
            return _send_batch(context, command, header, topic, stream)
        if header.topic.startswith(RETRY_PREFIX) and is_given_up(context, command, header):
            topic = dead_letters(context, header.topic.removeprefix(RETRY_PREFIX))
            header.properties += f"\x02{DELAY}\x01-1\x02"
            return _send_one(context, command, header, topic, topic.stream(0))
        return _send_one(context, command, header, topic, stream)
    except Refusal as refusal:
        context.shared.counts.refused_write(type(refusal).__name__)
        return reply_refused(command, refusal, SENT_FIELDS)


def _send_one(context: Context, command: Command, header: Send, topic: SharedTopic, stream: SharedStream) -> Reply:
    properties = _full_properties(context, header.properties)
    if not command.body:
        raise Failure(Code.MESSAGE_ILLEGAL, "a message has a body")
    queue_id, handle = stream.id.number, ""
    code = tags_code(properties.get(TAGS, ""))
    if properties.get(TRANSACTIONAL, "").lower() == "true" and not header.topic.startswith(RETRY_PREFIX):
        topic, stream = context.shared.transactions.prepare(topic, queue_id, properties)
        header.sysFlag &= ~TRANSACTION_BITS
    elif (waiting := context.shared.delays.postpone(topic, queue_id, properties)) is not None:
        topic, stream, code, handle = waiting
    draft = _draft(context, header, topic, stream, command.body, header.flag, _packed(properties))
    store_host = context.shared.identity.store_host
    placed = context.sharing.append(context.caller, topic, stream, draft, code, store_host)
    ticket, offset = placed.ticket, placed.queue_offset
    id = offset_message_id(store_host, placed.position)
    unique = properties[UNIQUE_KEY]

    def build() -> Parts:
        if ticket.refusal is not None:
            return refused_parts(command, ticket.refusal, SENT_FIELDS)
        return answer_sent(command.opaque, id, queue_id, offset, unique, handle)

    return Reply.when_durable(ticket.number, build, UNORDERED)


def _send_batch(context: Context, command: Command, header: Send, topic: SharedTopic, stream: SharedStream) -> Reply:
    """All of its messages, or none: what is wrong with one of them is found before the first is appended."""
    if header.topic.startswith(RETRY_PREFIX):
        raise Failure(Code.MESSAGE_ILLEGAL, f"batch request does not support retry group {header.topic}")
    outer = read_properties(header.properties)
    if DELAY in outer or outer.get(TRANSACTIONAL, "").lower() == "true":
        raise Failure(Code.MESSAGE_ILLEGAL, f"{_ILLEGAL}: a batch is neither delayed nor a half")
    drafts = _batch_drafts(context, command, header, topic, stream)
    store_host = context.shared.identity.store_host
    placed = [context.sharing.append(context.caller, topic, stream, draft, code, store_host) for draft, code in drafts]
    ids = ",".join(offset_message_id(store_host, each.position) for each in placed)
    ticket, first, queue_id = placed[-1].ticket, placed[0].queue_offset, drafts[0][0].queue_id

    def build() -> Parts:
        refusal = next((each.ticket.refusal for each in placed if each.ticket.refusal is not None), None)
        if refusal is not None:
            return refused_parts(command, refusal, SENT_FIELDS)
        return answer_sent(command.opaque, ids, queue_id, first, "")

    return Reply.when_durable(ticket.number, build, UNORDERED)


def _batch_drafts(
    context: Context, command: Command, header: Send, topic: SharedTopic, stream: SharedStream
) -> Sequence[tuple[Draft, int]]:
    try:
        batched = list(read_batch(command.body))
    except BadUnit as error:
        raise Failure(Code.MESSAGE_ILLEGAL, f"{_ILLEGAL}: {error}") from None
    if not batched:
        raise Failure(Code.MESSAGE_ILLEGAL, "a batch holds a message")
    if len(command.body) > context.shared.settings.message_bytes:
        raise MessageTooLong(len(command.body), context.shared.settings.message_bytes)
    drafts = []
    for flag, body, raw in batched:
        properties = read_properties(raw)
        draft = _draft(context, header, topic, stream, body, flag, _packed(properties))
        drafts.append((draft, tags_code(properties.get(TAGS, ""))))
    return drafts


def _draft(
    context: Context,
    header: Send,
    topic: SharedTopic,
    stream: SharedStream,
    body: bytes | bytearray | memoryview,
    flag: int,
    properties: bytes,
) -> Draft:
    return Draft(
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


# -- which queue


def _find_stream(context: Context, header: Send) -> tuple[SharedTopic, SharedStream]:
    topic = context.sharing.find(context.caller, header.topic)
    if topic is None:
        check_topic_name(context, header.topic)
        topic = _create_topic(context, header)
    if header.topic in FORBIDDEN:
        raise Failure(Code.NO_PERMISSION, f"Sending message to topic[{header.topic}] is forbidden.")
    queue_id = header.queueId
    definition = topic.definition
    most = max(definition.read_streams, definition.write_streams)
    if queue_id >= most or not definition.write_streams:
        raise Failure(Code.INVALID_PARAMETER, f"request queueId[{queue_id}] is illegal, {definition}")
    if queue_id < 0:
        queue_id = context.shared.chance.randrange(definition.write_streams)
    return topic, topic.stream(queue_id)


def check_topic_name(context: Context, name: str) -> None:
    if not name.strip():
        raise Failure(Code.INVALID_PARAMETER, "The specified topic is blank.")
    if len(name) > LONGEST_TOPIC:
        reason = f"The specified topic: {name[:200]}, is longer than topic max length {LONGEST_TOPIC}."
        raise Failure(Code.INVALID_PARAMETER, reason)
    context.sharing.check_name(name)


def _create_topic(context: Context, header: Send) -> SharedTopic:
    """As its default topic is, with no more queues than that has. Retry topics need no default."""
    name = header.topic
    if name.startswith(RETRY_PREFIX):
        definition = SharedDefinition(context.caller.namespace, name, 1, 1)
    else:
        pattern = context.sharing.find(context.caller, header.defaultTopic)
        if (
            pattern is None
            or not pattern.definition.permissions & INHERITABLE
            or not context.shared.settings.auto_create_topics
        ):
            _refuse_unknown(context, name)
        assert pattern is not None
        count = max(min(header.defaultTopicQueueNums, pattern.definition.write_streams), 0)
        permissions = pattern.definition.permissions & ~INHERITABLE
        definition = SharedDefinition(context.caller.namespace, name, count, count, permissions)
    topic, _ = context.sharing.create(context.caller, definition)
    return topic


def _refuse_unknown(context: Context, name: str) -> None:
    try:
        context.sharing.topic(context.caller, name)
    except UnknownTopic:
        raise Failure(Code.TOPIC_NOT_EXIST, f"topic[{name}] not exist, apply first please!") from None
    except OtherHome as refusal:
        raise Failure(Code.NO_PERMISSION, str(refusal)) from None


# -- what a message carries


def _full_properties(context: Context, raw: str) -> dict[str, str]:
    """What the producer set, and what the broker adds: where the message is, and a key if it has none."""
    properties = read_properties(raw)
    properties.pop("POP_CK", None)
    if UNIQUE_KEY not in properties:
        properties[UNIQUE_KEY] = _new_unique_key(context)
    properties.setdefault("MSG_REGION", REGION)
    properties.setdefault("TRACE_ON", "true")
    properties["CLUSTER"] = context.shared.identity.cluster_name
    return properties


def _packed(properties: dict[str, str]) -> bytes:
    try:
        packed = write_properties(properties)
    except ValueError as error:
        raise Failure(Code.MESSAGE_ILLEGAL, f"{_ILLEGAL}: {error}") from None
    if len(packed) > LONGEST_PROPERTIES:
        raise PropertiesTooLong(len(packed), LONGEST_PROPERTIES)
    return packed


def _new_unique_key(context: Context) -> str:
    shared = context.shared
    chance = shared.chance.getrandbits(64)
    now_ms = shared.clock.message.now_ms()
    return unique_key(shared.identity.store_host, chance >> 48, chance, now_ms, chance >> 32)
