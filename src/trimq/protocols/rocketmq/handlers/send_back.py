"""CONSUMER_SEND_MSG_BACK (36): retries a message that a consumer failed to process.

Stores the message again for the group's retry topic, delayed by its level, with one attempt more. After the last
attempt, or with a level below 0, it is dead-lettered. Messages that clients send to a retry topic have the same
limit."""

from __future__ import annotations

from contextlib import suppress

import msgspec

from trimq.core.commit_log.groups import CommitLogGroup
from trimq.core.commit_log.stream import MessageQueue
from trimq.core.commit_log.topics import CommitLogTopic, CommitLogTopicDefinition
from trimq.core.crossing.units import FOREIGN_POSITION
from trimq.core.failures.ledger import Reason
from trimq.core.security.resources import Action
from trimq.errors import OffsetOutOfRange, Refusal, UnknownStream
from trimq.formats.rocketmq_unit.copies import BROKER_PROPERTIES, WAIT, copied_properties
from trimq.formats.rocketmq_unit.hosts import offset_message_id
from trimq.formats.rocketmq_unit.properties import TAGS, read_properties, tags_code
from trimq.formats.rocketmq_unit.retries import OPTIONAL_IN_DEAD_LETTER, ORIGIN_ID, RETRY_TOPIC
from trimq.formats.rocketmq_unit.schedule import DELAY
from trimq.formats.rocketmq_unit.ttl import EXPIRES_MS, keep_expiry
from trimq.formats.rocketmq_unit.unit import Unit, UnitDraft
from trimq.protocols.contract import Reply
from trimq.protocols.rocketmq.handlers.context import Context
from trimq.protocols.rocketmq.handlers.topic_creation import after_topic_creation
from trimq.protocols.rocketmq.state.system_topics import DLQ_PREFIX, RETRY_PREFIX
from trimq.protocols.rocketmq.wire.codes import RemotingRefusal, ResponseCode
from trimq.protocols.rocketmq.wire.headers import Int32, Int64, SendHeader
from trimq.protocols.rocketmq.wire.replies import done_when_durable, reply, reply_refused
from trimq.wire.remoting import Command

_FIRST_LEVEL = 3
_OPTIONAL = (*BROKER_PROPERTIES, WAIT, ORIGIN_ID, EXPIRES_MS)
_KNOWS_OF_LIMITS_FROM = 121  # first client version that sends maxReconsumeTimes


class _SendBack(msgspec.Struct):
    offset: Int64
    group: str
    delayLevel: Int32
    maxReconsumeTimes: Int32 | None = None
    originTopic: str = ""


def send_back(context: Context, command: Command) -> Reply:
    header = command.read(_SendBack)
    group = context.get_or_create_group(header.group)
    if group.retry_streams <= 0:
        return reply(command)  # retries are off for this group
    if context.commit_log.messages.may_write_to(context.caller, f"{RETRY_PREFIX}{group.name}"):
        with suppress(Refusal):  # a dead letter needs no retry topic
            # as in Apache, before the message is read
            _group_topic(context, RETRY_PREFIX, group.name, group.retry_streams)
    unit = _find_unit(context, header)
    properties = read_properties(unit.properties)
    keep_expiry(properties, unit.store_ms)
    properties.setdefault(RETRY_TOPIC, unit.topic.decode())
    properties.setdefault(ORIGIN_ID, offset_message_id(unit.store_host, unit.position))
    properties[WAIT] = "false"
    limit = max_reconsume_times(command, header.maxReconsumeTimes, group)
    is_dead = header.delayLevel < 0 or unit.reconsume_times >= limit
    if is_dead:
        properties[DELAY] = "0"
        topic = dead_letter_topic(context, group.name)
        if (later := _send_back_later(context, command, topic)) is not None:
            return later
        stream = topic.stream(0)
        code = tags_code(properties.get(TAGS, ""))
    else:
        level = header.delayLevel or _FIRST_LEVEL + unit.reconsume_times
        properties[DELAY] = str(level)
        retries = _group_topic(context, RETRY_PREFIX, group.name, group.retry_streams)
        if (later := _send_back_later(context, command, retries)) is not None:
            return later
        if EXPIRES_MS in properties:
            context.commit_log.topics.enable_ttl(retries)
        waiting = context.services.sending.scheduler.postpone(retries, _draw(context, retries), properties)
        assert waiting is not None, "its level is above 0"
        topic, stream, code = waiting.topic, waiting.stream, waiting.code
    written = copied_properties(properties, OPTIONAL_IN_DEAD_LETTER if is_dead else _OPTIONAL)
    draft = _retry_draft(unit, topic, stream, written)
    placed = context.commit_log.messages.append(
        context.caller, topic, stream, draft, code, context.services.identity.store_host
    )
    if is_dead:
        reason = Reason.DELIVERY_LIMIT if unit.reconsume_times >= limit else Reason.REJECTED
        context.commit_log.dead_letters.record_dead_letter(context.caller, topic, placed, draft, reason)
    context.services.traffic.count_returned(unit.topic.decode(), group.name, placed.store_ms)
    return done_when_durable(command, placed.ticket)


def _find_unit(context: Context, header: _SendBack) -> Unit:
    try:
        if header.offset < FOREIGN_POSITION:
            return context.commit_log.lookup.unit_at(context.caller, header.offset)
        topic = context.foreign_topic(header.originTopic, Action.READ)
        if topic is not None:
            return topic.unit_at(header.offset)
    except (OffsetOutOfRange, UnknownStream):
        pass
    raise RemotingRefusal(ResponseCode.SYSTEM_ERROR, f"look message by offset failed, {header.offset}")


def _send_back_later(context: Context, command: Command, topic: CommitLogTopic) -> Reply | None:
    return after_topic_creation(
        context, topic, lambda: send_back(context, command), lambda refusal: reply_refused(command, refusal)
    )


def max_reconsume_times(command: Command, asked: int | None, group: CommitLogGroup) -> int:
    if asked is not None and command.version >= _KNOWS_OF_LIMITS_FROM:
        return asked
    return group.retry_limit


def dead_letter_topic(context: Context, group: str) -> CommitLogTopic:
    return _group_topic(context, DLQ_PREFIX, group, 1)


def must_dead_letter(context: Context, command: Command, header: SendHeader) -> bool:
    """Returns whether a message sent to a retry topic is over its limit of attempts, or would be redelivered out of
    order because its group locks queues."""
    name = header.topic.removeprefix(RETRY_PREFIX)
    group = context.commit_log.groups.find(context.caller, name) or CommitLogGroup(name)
    if context.services.consuming.locks.has_any(name) and header.reconsumeTimes > 0:
        return True
    return header.reconsumeTimes > max_reconsume_times(command, header.maxReconsumeTimes, group)


def _group_topic(context: Context, prefix: str, group: str, count: int) -> CommitLogTopic:
    """Returns the group's retry or dead-letter topic, and creates it if it does not exist."""
    name = f"{prefix}{group}"
    found = context.commit_log.topics.find(context.caller, name)
    if found is None:
        found, _ = context.commit_log.topics.create(
            context.caller, CommitLogTopicDefinition(context.caller.namespace, name, count, count)
        )
    return found


def _draw(context: Context, topic: CommitLogTopic) -> int:
    return context.services.rng.randrange(max(topic.definition.write_streams, 1))


def _retry_draft(unit: Unit, topic: CommitLogTopic, stream: MessageQueue, properties: bytes) -> UnitDraft:
    """Returns the same message with one attempt more."""
    return UnitDraft(
        topic.raw_name,
        stream.id.number,
        unit.body,
        properties,
        unit.flag,
        unit.sys_flag,
        unit.born_ms,
        unit.born_host,
        unit.reconsume_times + 1,
    )
