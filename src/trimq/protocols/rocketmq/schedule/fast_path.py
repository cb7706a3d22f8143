"""Fast path for the properties of delayed messages that need no other special treatment: finds their schedule queue and
encodes their properties. Falls back to `send` when any other special property is present."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import NamedTuple

from trimq.core.commit_log.topics import CommitLogTopic
from trimq.errors import Refusal
from trimq.formats.rocketmq_unit.dead_letters import REAL_QUEUE, REAL_TOPIC
from trimq.formats.rocketmq_unit.properties import UNIQUE_KEY
from trimq.formats.rocketmq_unit.schedule import TIMER_OUT_MS
from trimq.protocols.rocketmq.schedule.scheduler import DELAY_PROPERTIES, DelayScheduler, ScheduleSlot
from trimq.protocols.rocketmq.wire.fast_properties import PropertyTemplates

_ASKED = re.compile(f"(?:^|\x02)({'|'.join(DELAY_PROPERTIES)})\x01([^\x02]*)")
_WAY = f"{REAL_TOPIC}\x01%s\x02{REAL_QUEUE}\x01%d\x02".encode()
_TIME = f"{TIMER_OUT_MS}\x01%d\x02".encode()


class DelayedMessage(NamedTuple):
    """`written`: properties as stored; `keys`: keys besides the unique one."""

    waiting: ScheduleSlot
    unique: str
    written: bytes
    keys: str | None


class DelayedPropertyTemplates:
    """As `PropertyTemplates`, for messages with exactly one special property, which asks for a delay."""

    def __init__(self, delays: DelayScheduler, added: str, special: Collection[str]) -> None:
        self._delays = delays
        added_here = (REAL_TOPIC, REAL_QUEUE, TIMER_OUT_MS)
        self._shapes = PropertyTemplates(added, (frozenset(special) - {*DELAY_PROPERTIES}) | {*added_here})

    def read(self, topic: CommitLogTopic, number: int, text: str) -> DelayedMessage | None:
        """Returns None if the properties need the full treatment."""
        asked = _ASKED.findall(text)
        if len(asked) != 1:
            return None
        plain = self._shapes.read(text)
        if plain is None:
            return None
        ((name, value),) = asked
        unique, written, _, keys = plain
        properties = {name: value, UNIQUE_KEY: unique}
        try:
            waiting = self._delays.postpone(topic, number, properties)
        except Refusal:
            return None  # the full path meets the same refusal and reports it
        if waiting is None or properties[name] != value:  # a level above the highest is stored as the highest
            return None
        written += _WAY % (topic.raw_name, number)
        if TIMER_OUT_MS in properties:
            written += _TIME % waiting.code
        return DelayedMessage(waiting, unique, written, keys)
