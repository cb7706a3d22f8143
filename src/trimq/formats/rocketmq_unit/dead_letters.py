"""Dead-lettered message units: those of a consumer group, and half messages that were never decided. Owns the
properties that describe their origin, and the form in which they are sent again. Knows no ledger."""

from __future__ import annotations

from typing import NamedTuple

from trimq.formats.rocketmq_unit.copies import copied_properties
from trimq.formats.rocketmq_unit.hosts import BadMessageId, read_message_id
from trimq.formats.rocketmq_unit.properties import find_property, read_properties
from trimq.formats.rocketmq_unit.retries import (
    DLQ_PREFIX,
    FIRST_POPPED_MS,
    ORIGIN_ID,
    RETRY_PREFIX,
    RETRY_TOPIC,
    pop_retry_topic,
)
from trimq.formats.rocketmq_unit.schedule import DELAY, parse_time_ms
from trimq.formats.rocketmq_unit.ttl import drop_expiry
from trimq.formats.rocketmq_unit.unit import TRANSACTION_BITS, Unit, UnitDraft

CHECK_MAX_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"

REAL_TOPIC = "REAL_TOPIC"
REAL_QUEUE = "REAL_QID"
PRODUCER_GROUP = "PGROUP"
TRANSACTIONAL = "TRAN_MSG"
CHECKED_TIMES = "TRANSACTION_CHECK_TIMES"
HALF_FIRST = "TRIMQ_HALF_FIRST"
"""Property of a half message moved to the end of its topic: its first position, and the time since when it waits."""

_UNKNOWN = -1


class DeadLetter(NamedTuple):
    """Fields of a dead letter. `origin_position`: position of the message in the log, -1 if unknown. `resend_to`: topic
    and queue to which it is sent again."""

    topic: str
    queue_id: int
    group: str
    attempts: int
    origin_position: int
    resend_to: tuple[str, int]
    is_half: bool


def is_dead_letter_topic(name: str) -> bool:
    return name.startswith(DLQ_PREFIX) or name == CHECK_MAX_TOPIC


def read_dead_letter(letter: UnitDraft | Unit) -> DeadLetter:
    properties = read_properties(letter.properties)
    place = letter.topic.decode("utf-8", "replace")
    if place == CHECK_MAX_TOPIC:
        topic, queue_id = properties.get(REAL_TOPIC, ""), max(parse_time_ms(properties.get(REAL_QUEUE)), 0)
        checks, group = parse_time_ms(properties.get(CHECKED_TIMES)), properties.get(PRODUCER_GROUP, "")
        return DeadLetter(topic, queue_id, group, checks, _UNKNOWN, (topic, queue_id), is_half=True)
    group = place.removeprefix(DLQ_PREFIX)
    topic = properties.get(RETRY_TOPIC, "")
    resend_to = pop_retry_topic(group, topic) if FIRST_POPPED_MS in properties else f"{RETRY_PREFIX}{group}"
    position = _position(properties.get(ORIGIN_ID, ""))
    return DeadLetter(topic, 0, group, letter.reconsume_times, position, (resend_to, 0), is_half=False)


def was_dead_lettered_by_broker(unit: Unit) -> bool:
    """Returns whether a broker has dead-lettered the unit, not a client that sends to such a topic."""
    return unit.topic == CHECK_MAX_TOPIC.encode() or find_property(unit.properties, DELAY) is not None


def resend_draft(unit: Unit | UnitDraft, resend_to: tuple[str, int]) -> UnitDraft:
    """Returns the message of a dead letter for sending it again: all delivery attempts are available again."""
    properties = read_properties(unit.properties)
    for name in (DELAY, REAL_TOPIC, REAL_QUEUE, TRANSACTIONAL, CHECKED_TIMES, HALF_FIRST):
        properties.pop(name, None)
    drop_expiry(properties)  # an operator who sends it again wants it to be read
    topic, queue_id = resend_to
    sys_flag = unit.sys_flag & ~TRANSACTION_BITS
    return UnitDraft(
        topic.encode(),
        queue_id,
        unit.body,
        copied_properties(properties),
        unit.flag,
        sys_flag,
        unit.born_ms,
        unit.born_host,
    )


def _position(id: str) -> int:
    try:
        return read_message_id(id).position
    except BadMessageId:
        return _UNKNOWN
