"""Codes 10, 310 and 320: a message, or a batch of them, for one queue.

The message gets its place now and is answered when that is durable. A topic that does not exist is made after its
default topic, if that may be inherited.
A message that is to come later waits in a topic of the broker's own until it is due.
A half, whose producer decides later whether it counts, waits in another."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial
from typing import NamedTuple

from trimq.core.api.commit_log import Outgoing
from trimq.core.commit_log.stream import SharedStream
from trimq.core.commit_log.topics import INHERITABLE, WRITABLE, SharedDefinition, SharedTopic
from trimq.core.failures.ledger import Reason
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
from trimq.formats.rocketmq_unit.ttl import LIMITS
from trimq.formats.rocketmq_unit.unit import (
    BORN_HOST_V6,
    LONGEST_PROPERTIES,
    LONGEST_SENT_PROPERTIES,
    STORE_HOST_V6,
    TRANSACTION_BITS,
    BadUnit,
    Draft,
)
from trimq.protocols.contract import Parts, Reply
from trimq.protocols.rocketmq.handlers.context import Context
from trimq.protocols.rocketmq.handlers.message_ttl import limit_life, limits_all
from trimq.protocols.rocketmq.handlers.send_back import dead_letters, is_given_up
from trimq.protocols.rocketmq.handlers.send_deduplication import answer_repeated, given_id, sort_out
from trimq.protocols.rocketmq.handlers.topic_creation import when_made
from trimq.protocols.rocketmq.schedule.scheduler import DELAYING
from trimq.protocols.rocketmq.state.sent_ids import Sent
from trimq.protocols.rocketmq.state.system_topics import DLQ_PREFIX, FORBIDDEN, RETRY_PREFIX
from trimq.protocols.rocketmq.wire.codes import Code, Failure, Request
from trimq.protocols.rocketmq.wire.headers import Send, SendV2
from trimq.protocols.rocketmq.wire.remoting import Command
from trimq.protocols.rocketmq.wire.replies import UNORDERED, refused_parts, reply_refused
from trimq.protocols.rocketmq.wire.responses import REGION, SENT_FIELDS, answer_sent

LONGEST_TOPIC = 127

_ILLEGAL = "the message is illegal, maybe msg body or properties length not matched"
_HOST_BITS = BORN_HOST_V6 | STORE_HOST_V6


def send(context: Context, command: Command) -> Reply:
    header = command.read(Send) if command.code == Request.SEND_MESSAGE else command.read(SendV2)
    try:
        topic, stream = find_stream(context, header)
        is_dead = header.topic.startswith(RETRY_PREFIX) and is_given_up(context, command, header)
        if is_dead:
            topic = dead_letters(context, header.topic.removeprefix(RETRY_PREFIX))
        if topic.creation is not None and (later := _send_later(context, command, topic)) is not None:
            return later
        if header.batch:
            return _send_batch(context, command, header, topic, stream)
        if context.shared.repeats.is_on and (known := answer_repeated(context, command, header)) is not None:
            return known
        if is_dead:
            header.properties += f"\x02{DELAY}\x01-1\x02"
            return _send_one(context, command, header, topic, topic.stream(0))
        return _send_one(context, command, header, topic, stream)
    except Refusal as refusal:
        context.shared.counts.refused_write(type(refusal).__name__)
        return reply_refused(command, refusal, SENT_FIELDS)


def _send_later(context: Context, command: Command, topic: SharedTopic) -> Reply | None:
    def refuse(refusal: Refusal) -> Reply:
        context.shared.counts.refused_write(type(refusal).__name__)
        return reply_refused(command, refusal, SENT_FIELDS)

    return when_made(context, topic, lambda: send(context, command), refuse)


def _send_one(context: Context, command: Command, header: Send, topic: SharedTopic, stream: SharedStream) -> Reply:
    if not command.body:
        raise Failure(Code.MESSAGE_ILLEGAL, "a message has a body")
    properties = read_properties(header.properties)
    queue_id = stream.id.number
    handle, code = "", tags_code(properties.get(TAGS, ""))
    written, home = None, topic
    if not limits_all(topic.definition):
        written = _written_as_sent(context, header.properties, properties)
    if written is None:
        full_properties(context, properties)
        limit_life(context, topic, properties)
        home, stream, code, handle = _stored_where(context, header, topic, stream, code, properties)
        # What a client sends to be tried again has been on its way before.
        is_again = header.topic.startswith(RETRY_PREFIX)
        written = packed(properties, LONGEST_PROPERTIES if is_again else LONGEST_SENT_PROPERTIES)
    draft = make_draft(context, header, home, stream, command.body, header.flag, written)
    store_host = context.shared.identity.store_host
    placed = context.sharing.append(context.caller, topic, stream, draft, code, store_host)
    if header.topic.startswith(RETRY_PREFIX) and topic.name.name.startswith(DLQ_PREFIX):
        context.sharing.failures.note(context.caller, topic, placed, draft, Reason.DELIVERY_LIMIT)
    context.shared.traffic.count_sent(header.topic, placed.store_ms, len(command.body))
    ticket, offset = placed.ticket, placed.queue_offset
    id = offset_message_id(store_host, placed.position)
    unique = properties[UNIQUE_KEY]
    if context.shared.repeats.is_on and given_id(header) is not None:
        context.shared.repeats.remember(header.topic, unique, Sent(id, queue_id, offset, handle, ticket))

    def build() -> Parts:
        if ticket.refusal is not None:
            return refused_parts(command, ticket.refusal, SENT_FIELDS)
        return answer_sent(command.opaque, id, queue_id, offset, unique, handle)

    def late() -> Parts:
        return answer_sent(command.opaque, id, queue_id, offset, unique, handle, Code.FLUSH_DISK_TIMEOUT)

    return context.shared.flushes.watch(ticket, Reply.when_durable(ticket.number, build, UNORDERED), late)


def _stored_where(
    context: Context, header: Send, topic: SharedTopic, stream: SharedStream, code: int, properties: dict[str, str]
) -> tuple[SharedTopic, SharedStream, int, str]:
    """Where a message waits that is a half or that is to come later, which its properties then tell, and the handle by
    which it may be recalled; else where it was sent to."""
    queue_id = stream.id.number
    if properties.get(TRANSACTIONAL, "").lower() == "true" and not header.topic.startswith(RETRY_PREFIX):
        half_topic, halves = context.shared.transactions.prepare(topic, queue_id, properties)
        header.sysFlag &= ~TRANSACTION_BITS
        return half_topic, halves, code, ""
    return context.shared.delays.postpone(topic, queue_id, properties) or (topic, stream, code, "")


def _send_batch(context: Context, command: Command, header: Send, topic: SharedTopic, stream: SharedStream) -> Reply:
    """All of its messages, or none: what is wrong with one of them is found before the first is appended."""
    if header.topic.startswith(RETRY_PREFIX):
        raise Failure(Code.MESSAGE_ILLEGAL, f"batch request does not support retry group {header.topic}")
    outer = read_properties(header.properties)
    if DELAY in outer or outer.get(TRANSACTIONAL, "").lower() == "true":
        raise Failure(Code.MESSAGE_ILLEGAL, f"{_ILLEGAL}: a batch is neither delayed nor a half")
    batched = _read_batch(context, command, header, topic, stream)
    sent = store_batch(context, header.topic, batched)
    ids, queue_id, first = ",".join(each.id for each in sent), sent[0].queue_id, sent[0].queue_offset
    pending = [each.pending for each in sent if each.pending is not None]

    def build(code: int = Code.SUCCESS) -> Parts:
        refusal = next((each.refusal for each in pending if each.refusal is not None), None)
        if refusal is not None:
            return refused_parts(command, refusal, SENT_FIELDS)
        return answer_sent(command.opaque, ids, queue_id, first, "", code=code)

    if not pending:
        return Reply.now(build(), UNORDERED)
    latest = max(pending, key=lambda each: each.number)
    reply = Reply.when_durable(latest.number, build, UNORDERED)
    return context.shared.flushes.join(latest, reply, partial(build, Code.FLUSH_DISK_TIMEOUT))


class Batched(NamedTuple):
    outgoing: Outgoing
    id: str | None


def store_batch(context: Context, name: str, batched: Sequence[Batched]) -> list[Sent]:
    """All of them, or none. For each message what is answered for it. One that was sent before is not stored again."""
    shared = context.shared
    places = sort_out(context, name, [each.id for each in batched])
    outgoing: list[Outgoing] = []
    for each, place in zip(batched, places, strict=True):
        if place == len(outgoing):
            outgoing.append(each.outgoing)
    store_host = shared.identity.store_host
    placed = context.sharing.append_all(context.caller, outgoing, store_host) if outgoing else []
    fresh = []
    for new, went in zip(placed, outgoing, strict=True):
        shared.traffic.count_sent(name, new.store_ms, new.size)
        id = offset_message_id(store_host, new.position)
        fresh.append(Sent(id, went.stream.id.number, new.queue_offset, "", new.ticket))
    if placed:
        shared.flushes.begin(placed[-1].ticket)
    sent = [place if isinstance(place, Sent) else fresh[place] for place in places]
    if shared.repeats.is_on:
        for each, answered in zip(batched, sent, strict=True):
            if each.id is not None:
                shared.repeats.remember(name, each.id, answered)
    return sent


def _read_batch(
    context: Context, command: Command, header: Send, topic: SharedTopic, stream: SharedStream
) -> list[Batched]:
    try:
        batched = list(read_batch(command.body))
    except BadUnit as error:
        raise Failure(Code.MESSAGE_ILLEGAL, f"{_ILLEGAL}: {error}") from None
    if not batched:
        raise Failure(Code.MESSAGE_ILLEGAL, "a batch holds a message")
    if len(command.body) > context.shared.settings.message_bytes:
        raise MessageTooLong(len(command.body), context.shared.settings.message_bytes)
    read = []
    for flag, body, raw in batched:
        properties = read_properties(raw)
        limit_life(context, topic, properties)
        draft = make_draft(context, header, topic, stream, body, flag, packed(properties))
        outgoing = Outgoing(topic, stream, draft, tags_code(properties.get(TAGS, "")))
        read.append(Batched(outgoing, properties.get(UNIQUE_KEY)))
    return read


def make_draft(
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


def find_stream(context: Context, header: Send) -> tuple[SharedTopic, SharedStream]:
    topic = context.sharing.find(context.caller, header.topic)
    if topic is None:
        check_topic_name(context, header.topic)
        topic = _create_topic(context, header)
    if header.topic in FORBIDDEN:
        raise Failure(Code.NO_PERMISSION, f"Sending message to topic[{header.topic}] is forbidden.")
    queue_id = header.queueId
    definition = topic.definition
    if not definition.permissions & WRITABLE:
        raise Failure(Code.NO_PERMISSION, f"the topic[{header.topic}] sending message is forbidden")
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


def full_properties(context: Context, properties: dict[str, str]) -> dict[str, str]:
    """What the producer set, and what the broker adds: where the message is, and a key if it has none."""
    properties.pop("POP_CK", None)
    if UNIQUE_KEY not in properties:
        properties[UNIQUE_KEY] = _new_unique_key(context)
    properties.setdefault("MSG_REGION", REGION)
    properties.setdefault("TRACE_ON", "true")
    properties["CLUSTER"] = context.shared.identity.cluster_name
    return properties


_BROKERS_OWN = ("MSG_REGION", "TRACE_ON", "CLUSTER", "POP_CK")
SPECIAL_PROPERTIES = frozenset((*_BROKERS_OWN, TRANSACTIONAL, *DELAYING, *LIMITS))


def _written_as_sent(context: Context, text: str, properties: dict[str, str]) -> bytes | None:
    """The properties as they are stored, of a message that is like most: nothing in it asks for anything but to be
    stored, so that what the broker adds can be put behind what came. None: it must be looked at more closely."""
    if UNIQUE_KEY not in properties or not SPECIAL_PROPERTIES.isdisjoint(properties) or not is_plain(text, properties):
        return None
    separator = "" if text.endswith(VALUE_ENDS) else VALUE_ENDS
    written = f"{text}{separator}{added_properties(context.shared.identity.cluster_name)}".encode("utf-8", "replace")
    return written if len(written) <= LONGEST_SENT_PROPERTIES else None


@lru_cache(maxsize=1)
def added_properties(cluster_name: str) -> str:
    """What the broker adds to the properties of every message."""
    return write_properties({"MSG_REGION": REGION, "TRACE_ON": "true", "CLUSTER": cluster_name}).decode()


def packed(properties: dict[str, str], limit: int = LONGEST_SENT_PROPERTIES) -> bytes:
    try:
        written = write_properties(properties)
    except ValueError as error:
        raise Failure(Code.MESSAGE_ILLEGAL, f"{_ILLEGAL}: {error}") from None
    if len(written) > limit:
        raise PropertiesTooLong(len(written), limit)
    return written


def _new_unique_key(context: Context) -> str:
    shared = context.shared
    chance = shared.chance.getrandbits(64)
    now_ms = shared.clock.message.now_ms()
    return unique_key(shared.identity.store_host, chance >> 48, chance, now_ms, chance >> 32)
