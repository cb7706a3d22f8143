"""VIEW_MESSAGE_BY_ID (33), QUERY_MESSAGE (12), QUERY_CONSUME_QUEUE (321).

Finds a message by its commit-log position, messages by key or tag (64 at most), and entries of a consume queue (1,000
at most)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import msgspec

from trimq.errors import OffsetOutOfRange
from trimq.formats.rocketmq_unit.unit import Unit, UnitDraft, encode_unit
from trimq.protocols.contract import Parts, Reply
from trimq.protocols.rocketmq.handlers.context import Context
from trimq.protocols.rocketmq.handlers.reset_offset import known_topic
from trimq.protocols.rocketmq.wire.codes import RemotingRefusal, ResponseCode
from trimq.protocols.rocketmq.wire.headers import Int32, Int64
from trimq.protocols.rocketmq.wire.replies import refused_parts, reply, reply_json
from trimq.protocols.rocketmq.wire.responses import encode_response
from trimq.wire.remoting import Command

_MAX_FOUND = 64
_MAX_ENTRIES = 1000
_MAX_OF_UNIQUE_KEY = 32  # whatever the query asks for, as in Apache RocketMQ
_BY_TAG = "T"  # indexType of a query by tag; all others are by key


class _View(msgspec.Struct):
    offset: Int64


class _Query(msgspec.Struct):
    topic: str
    key: str
    maxNum: Int32
    beginTimestamp: Int64
    endTimestamp: Int64
    indexType: str | None = None
    of_unique_key: str | None = msgspec.field(default=None, name="_UNIQUE_KEY_QUERY")


def view_message(context: Context, command: Command) -> Reply:
    header = command.read(_View)
    try:
        unit = context.commit_log.lookup.unit_at(context.caller, header.offset)
    except OffsetOutOfRange:
        raise RemotingRefusal(
            ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {header.offset}"
        ) from None
    return reply(command, body=encoded_unit(unit))


def query_message(context: Context, command: Command) -> Reply:
    """Returns the newest matches, oldest first. The search may take several turns of the loop: many messages may have
    the key and be too new."""
    found = _find(context, command.opaque, command.read(_Query))
    return context.services.consuming.searches.begin(found, partial(refused_parts, command))


def _find(context: Context, opaque: int, header: _Query) -> Iterator[Parts | None]:
    """Yields None after each step, then the response."""
    most = min(max(header.maxNum, 0), _MAX_FOUND)
    if header.of_unique_key == "true":
        most = _MAX_OF_UNIQUE_KEY
    units: list[Unit] = []
    for unit in _search(context, header):
        if unit is None:
            yield None
            continue
        if most:
            units.append(unit)
        if len(units) == most:
            break
    fields = {
        "indexLastUpdateTimestamp": str(units[0].store_ms if units else 0),
        "indexLastUpdatePhyoffset": str(units[0].position if units else 0),
    }
    if not units:
        raise RemotingRefusal(
            ResponseCode.QUERY_NOT_FOUND, "can not find message, maybe time range not correct", fields
        )
    yield encode_response(
        opaque, ResponseCode.SUCCESS, fields, body=b"".join(encoded_unit(unit) for unit in reversed(units))
    )


def _search(context: Context, header: _Query) -> Iterator[Unit | None]:
    lookup, asked = context.commit_log.lookup, (header.key, header.beginTimestamp, header.endTimestamp)
    if header.indexType != _BY_TAG:
        return lookup.search_key(context.caller, header.topic, *asked)
    topic = context.commit_log.topics.find(context.caller, header.topic)
    return iter(()) if topic is None else lookup.search_tag(context.caller, topic, *asked)


def encoded_unit(unit: Unit) -> bytes:
    draft = UnitDraft(
        unit.topic,
        unit.queue_id,
        unit.body,
        unit.properties,
        unit.flag,
        unit.sys_flag,
        unit.born_ms,
        unit.born_host,
        unit.reconsume_times,
        unit.prepared_position,
    )
    return encode_unit(draft, unit.queue_offset, unit.position, unit.store_ms, unit.store_host)


# -- consume queue entries


class _Queue(msgspec.Struct):
    topic: str
    queueId: Int32
    index: Int64
    count: Int32
    consumerGroup: str | None = None


def query_queue(context: Context, command: Command) -> Reply:
    """For a connected group, `eval` says whether its filter matches the entry."""
    header = command.read(_Queue)
    topic = known_topic(context, header.topic)
    if not 0 <= header.queueId < max(topic.definition.read_streams, topic.definition.write_streams):
        raise RemotingRefusal(
            ResponseCode.SYSTEM_ERROR, f"consume queue not exist. topic={header.topic} queueId={header.queueId}"
        )
    stream = topic.stream(header.queueId)
    shown: dict[str, Any] = {"maxQueueIndex": stream.readable_end, "minQueueIndex": stream.start, "filterData": ""}
    message_filter, is_judged = None, False
    if header.consumerGroup:
        context.commit_log.groups.require_describe(context.caller, header.consumerGroup)
    group = context.services.clients.group(header.consumerGroup or "")
    subscription = None if group is None else group.subscriptions.get(header.topic)
    if subscription is not None:
        message_filter, is_judged = subscription.message_filter(context.filter_limits), True
        shown |= {"subscriptionData": subscription.described(), "filterData": subscription.expression}
    elif header.consumerGroup is not None:
        shown["filterData"] = f"{header.consumerGroup}@{header.topic} is not online!"
    shown["queueData"] = [
        {
            "eval": is_judged and stream.matches_filter(entry, message_filter),
            "physicOffset": entry.position,
            "physicSize": entry.size,
            "tagsCode": entry.code,
        }
        for entry in stream.entries(header.index, min(max(header.count, 0), _MAX_ENTRIES))
    ]
    return reply_json(command, shown)
