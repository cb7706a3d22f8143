"""Codes 33 (a message by its place in the commit log) and 12 (messages by key)."""

from __future__ import annotations

from itertools import islice

import msgspec

from trimq.errors import OffsetOutOfRange
from trimq.formats.unit import Draft, Unit, encode_unit
from trimq.protocols.contract import Reply
from trimq.protocols.rocketmq.codes import Code, Failure
from trimq.protocols.rocketmq.handlers.context import Context
from trimq.protocols.rocketmq.handlers.replies import reply
from trimq.protocols.rocketmq.remoting import Command

_MOST_FOUND = 64


class _View(msgspec.Struct):
    offset: int


class _Query(msgspec.Struct):
    topic: str
    key: str
    maxNum: int
    beginTimestamp: int
    endTimestamp: int


def view_message(context: Context, command: Command) -> Reply:
    header = command.read(_View)
    try:
        unit = context.sharing.unit_at(context.caller, header.offset)
    except OffsetOutOfRange:
        raise Failure(Code.SYSTEM_ERROR, f"can not find message by the offset, {header.offset}") from None
    return reply(command, body=_encoded(unit))


def query_message(context: Context, command: Command) -> Reply:
    """The newest that were asked for, oldest first."""
    header = command.read(_Query)
    found = context.sharing.find_key(
        context.caller, header.topic, header.key, header.beginTimestamp, header.endTimestamp
    )
    units = list(islice(found, min(max(header.maxNum, 1), _MOST_FOUND)))
    newest = units[0] if units else None
    fields = {
        "indexLastUpdateTimestamp": str(newest.store_ms if newest else 0),
        "indexLastUpdatePhyoffset": str(newest.position if newest else 0),
    }
    if not units:
        raise Failure(Code.QUERY_NOT_FOUND, "can not find message, maybe time range not correct", fields)
    return reply(command, fields=fields, body=b"".join(_encoded(unit) for unit in reversed(units)))


def _encoded(unit: Unit) -> bytes:
    draft = Draft(
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
