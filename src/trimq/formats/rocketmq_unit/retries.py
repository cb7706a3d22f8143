"""Retried and dead-lettered message units of a consumer group: names of their topics and properties. Knows no lease."""

from __future__ import annotations

from trimq.formats.rocketmq_unit.copies import BROKER_PROPERTIES, WAIT, copied_properties
from trimq.formats.rocketmq_unit.hosts import offset_message_id
from trimq.formats.rocketmq_unit.properties import read_properties
from trimq.formats.rocketmq_unit.schedule import DELAY
from trimq.formats.rocketmq_unit.ttl import EXPIRES_MS, keep_expiry
from trimq.formats.rocketmq_unit.unit import LONGEST_PROPERTIES, Unit, UnitDraft

RETRY_PREFIX = "%RETRY%"
DLQ_PREFIX = "%DLQ%"

FIRST_POPPED_MS = "1ST_POP_TIME"
ORIGIN_GROUP = "ORIGIN_GROUP"
ORIGIN_ID = "ORIGIN_MESSAGE_ID"
RETRY_TOPIC = "RETRY_TOPIC"
RECEIPT = "POP_CK"

_ROOM_FOR_RECEIPT = 192

# Dropped in this order if the properties do not fit.
OPTIONAL_IN_RETRY = (*BROKER_PROPERTIES, WAIT, ORIGIN_GROUP, FIRST_POPPED_MS, EXPIRES_MS)
OPTIONAL_IN_DEAD_LETTER = (*BROKER_PROPERTIES, WAIT, ORIGIN_ID, RETRY_TOPIC, DELAY)


def pop_retry_topic(group: str, topic: str) -> str:
    """Returns the topic with the returned messages of a topic for a consumer group."""
    return f"{RETRY_PREFIX}{group}_{topic}"


def dead_letter_topic(group: str) -> str:
    return f"{DLQ_PREFIX}{group}"


def can_be_retried(unit: Unit) -> bool:
    """Returns whether there is room for the receipt of another delivery."""
    return len(unit.properties) + _ROOM_FOR_RECEIPT <= LONGEST_PROPERTIES


def retry_draft(unit: Unit, topic: bytes, group: str, popped_ms: int) -> UnitDraft:
    """Returns the message for the retry topic, with one more delivery attempt."""
    properties = read_properties(unit.properties)
    properties.pop(RECEIPT, None)
    keep_expiry(properties, unit.store_ms)
    properties.setdefault(FIRST_POPPED_MS, str(popped_ms))
    properties.setdefault(ORIGIN_GROUP, group)
    return _retried_draft(unit, topic, copied_properties(properties, OPTIONAL_IN_RETRY))


def dead_letter_draft(unit: Unit, topic: bytes, asked_for: str) -> UnitDraft:
    """Returns the message for the dead-letter topic; `asked_for` is the topic that the consumer group reads."""
    properties = read_properties(unit.properties)
    properties.setdefault(RETRY_TOPIC, asked_for)
    properties.setdefault(ORIGIN_ID, offset_message_id(unit.store_host, unit.position))
    properties[WAIT] = "false"
    properties[DELAY] = "0"
    return _retried_draft(unit, topic, copied_properties(properties, OPTIONAL_IN_DEAD_LETTER))


def _retried_draft(unit: Unit, topic: bytes, properties: bytes) -> UnitDraft:
    return UnitDraft(
        topic,
        0,
        unit.body,
        properties,
        unit.flag,
        unit.sys_flag,
        unit.born_ms,
        unit.born_host,
        unit.reconsume_times + 1,
    )
