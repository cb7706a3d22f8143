"""How message units look that came back from a group that did not settle them: the names of the topics that they are
kept in and of the properties that they carry. Knows no lease."""

from __future__ import annotations

from trimq.formats.unit import Draft, Unit
from trimq.formats.unit_hosts import offset_message_id
from trimq.formats.unit_properties import read_properties, write_properties
from trimq.formats.unit_schedule import DELAY

RETRY_PREFIX = "%RETRY%"
DLQ_PREFIX = "%DLQ%"

FIRST_POPPED_MS = "1ST_POP_TIME"
ORIGIN_GROUP = "ORIGIN_GROUP"
ORIGIN_ID = "ORIGIN_MESSAGE_ID"
RETRY_TOPIC = "RETRY_TOPIC"
RECEIPT = "POP_CK"


def returned_topic(group: str, topic: str) -> str:
    """Where messages of a topic wait for a group once they came back to it."""
    return f"{RETRY_PREFIX}{group}_{topic}"


def dead_letter_topic(group: str) -> str:
    return f"{DLQ_PREFIX}{group}"


def returned_draft(unit: Unit, topic: bytes, group: str, popped_ms: int) -> Draft:
    """The same message with one try more, for the topic of those that came back."""
    properties = read_properties(unit.properties)
    properties.pop(RECEIPT, None)
    properties.setdefault(FIRST_POPPED_MS, str(popped_ms))
    properties.setdefault(ORIGIN_GROUP, group)
    return _again(unit, topic, write_properties(properties))


def dead_draft(unit: Unit, topic: bytes, asked_for: str) -> Draft:
    """The same message at the end of its road; `asked_for` is the topic that the group reads."""
    properties = read_properties(unit.properties)
    properties.setdefault(RETRY_TOPIC, asked_for)
    properties.setdefault(ORIGIN_ID, offset_message_id(unit.store_host, unit.position))
    properties["WAIT"] = "false"
    properties[DELAY] = "0"
    return _again(unit, topic, write_properties(properties))


def _again(unit: Unit, topic: bytes, properties: bytes) -> Draft:
    return Draft(
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
