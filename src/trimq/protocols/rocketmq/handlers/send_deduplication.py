"""Deduplication of sends: a message that its producer sends again under the same unique id (UNIQ_KEY) is not stored
again, and gets the first response. Active for all messages if `rocketmq.remembered_ids` is above 0, and for those with
the property TRIMQ_ONCE always."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from types import MappingProxyType

from trimq.formats.rocketmq_unit.dead_letters import REAL_QUEUE, REAL_TOPIC, TRANSACTIONAL
from trimq.formats.rocketmq_unit.hosts import offset_message_id
from trimq.formats.rocketmq_unit.properties import UNIQUE_KEY, read_properties
from trimq.formats.rocketmq_unit.schedule import DELAY, SCHEDULE_TOPIC, TIMER_OUT_MS, WHEEL_TOPIC, parse_time_ms
from trimq.formats.rocketmq_unit.unit import Unit
from trimq.model import SYSTEM
from trimq.protocols.contract import Parts, Reply
from trimq.protocols.rocketmq.handlers.context import Context
from trimq.protocols.rocketmq.schedule.batch_delivery import RECALLED
from trimq.protocols.rocketmq.schedule.scheduler import DELAY_PROPERTIES
from trimq.protocols.rocketmq.state.sent_ids import SendResult
from trimq.protocols.rocketmq.state.system_topics import HALF_TOPIC, RETRY_PREFIX
from trimq.protocols.rocketmq.wire.codes import ResponseCode
from trimq.protocols.rocketmq.wire.headers import SendHeader
from trimq.protocols.rocketmq.wire.replies import UNORDERED, refused_parts
from trimq.protocols.rocketmq.wire.responses import SENT_FIELDS, encode_send_response
from trimq.wire.extension import ONCE
from trimq.wire.remoting import Command


def given_id(header: SendHeader) -> str | None:
    """Returns the id set by the producer. Returns None for a retry, which has the id of the first attempt and is not a
    duplicate."""
    if header.topic.startswith(RETRY_PREFIX):
        return None
    return read_properties(header.properties).get(UNIQUE_KEY)


def is_deduplicated(context: Context, properties: str) -> bool:
    """Whether a message with these encoded properties is stored once."""
    return context.services.sending.sent_ids.is_on or (ONCE in properties and ONCE in read_properties(properties))


def reply_to_duplicate(context: Context, command: Command, header: SendHeader) -> Reply | None:
    """Returns the first response, or None if the message is new."""
    unique = given_id(header)
    known = (
        None if unique is None else find_earlier_send(context, header.topic, unique, read_properties(header.properties))
    )
    if unique is None or known is None:
        return None

    def build(code: int = ResponseCode.SUCCESS) -> Parts:
        if known.pending is not None and known.pending.refusal is not None:
            return refused_parts(command, known.pending.refusal, SENT_FIELDS)
        id, queue_id, offset, handle, _ = known
        return encode_send_response(command.opaque, id, queue_id, offset, unique, handle, code)

    if known.pending is None:
        return Reply.when_durable(0, build, UNORDERED)
    reply = Reply.when_durable(known.pending.number, build, UNORDERED)
    return context.services.sending.flush_timeouts.join(
        known.pending, reply, partial(build, ResponseCode.FLUSH_DISK_TIMEOUT)
    )


def find_earlier_send(
    context: Context, topic: str, unique: str, properties: Mapping[str, str] = MappingProxyType({})
) -> SendResult | None:
    """Searches the remembered ids, then the key index for sends before a restart. `properties` show whether the message
    is delayed or a half message; its response then named the place in the system topic."""
    known = context.services.sending.sent_ids.find(topic, unique)
    if known is not None:
        return known
    found = context.commit_log.topics.find(context.caller, topic)
    # Messages before its creation belong to a deleted topic of the same name.
    since_ms = 0 if found is None else found.definition.created_ms
    now_ms = context.services.clock.message.now_ms()
    for name in _waiting_places(properties):
        for unit in context.commit_log.lookup.find_key(SYSTEM, name, unique, since_ms, now_ms):
            waiting = read_properties(unit.properties)
            is_it = waiting.get(UNIQUE_KEY) == unique and waiting.get(REAL_TOPIC) == topic
            if is_it and RECALLED not in waiting:
                return _sent_to_wait(context, topic, unit, waiting)
    for unit in context.commit_log.lookup.find_key(context.caller, topic, unique, since_ms, now_ms):
        if read_properties(unit.properties).get(UNIQUE_KEY) == unique:
            id = offset_message_id(unit.store_host, unit.position)
            return SendResult(id, unit.queue_id, unit.queue_offset, "", None)
    return None


def _waiting_places(properties: Mapping[str, str]) -> list[str]:
    """Returns the system topics that store a message with these properties: half message, or delayed message."""
    places = [HALF_TOPIC] if properties.get(TRANSACTIONAL, "").lower() == "true" else []
    if DELAY in properties:
        places.append(SCHEDULE_TOPIC)
    elif not properties.keys().isdisjoint(DELAY_PROPERTIES):
        places.append(WHEEL_TOPIC)
    return places


def _sent_to_wait(context: Context, topic: str, unit: Unit, properties: Mapping[str, str]) -> SendResult:
    handle, due_ms = "", parse_time_ms(properties.get(TIMER_OUT_MS))
    if due_ms:
        handle = context.services.sending.scheduler.handle(topic, due_ms, properties[UNIQUE_KEY])
    id = offset_message_id(unit.store_host, unit.position)
    return SendResult(id, parse_time_ms(properties.get(REAL_QUEUE)), unit.queue_offset, handle, None)


def find_duplicates(context: Context, topic: str, ids: Sequence[str | None]) -> list[SendResult | int]:
    """Returns for each message of a batch its earlier result, or else the index among the new messages of the first one
    with its id. An id of None stands for a message that is not deduplicated."""
    if not any(ids):
        return list(range(len(ids)))
    found: list[SendResult | int] = []
    fresh: dict[str, int] = {}
    count = 0
    for unique in ids:
        known = None if unique is None else fresh.get(unique, find_earlier_send(context, topic, unique))
        if known is None:
            known, count = count, count + 1
            if unique is not None:
                fresh[unique] = known
        found.append(known)
    return found
