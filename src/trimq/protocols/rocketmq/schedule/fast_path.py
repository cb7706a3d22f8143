"""The properties of messages that ask for nothing but to be stored and to come later: where these wait, and what is
stored of them."""

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
    """`written` is what is stored, `keys` what keys there are besides the unique one."""

    waiting: ScheduleSlot
    unique: str
    written: bytes
    keys: str | None


class DelayedPropertyTemplates:
    """As `PropertyTemplates`, for those that have one of the special properties: one that asks for a delay."""

    def __init__(self, delays: DelayScheduler, added: str, special: Collection[str]) -> None:
        self._delays = delays
        told = (REAL_TOPIC, REAL_QUEUE, TIMER_OUT_MS)
        self._shapes = PropertyTemplates(added, (frozenset(special) - {*DELAY_PROPERTIES}) | {*told})

    def read(self, topic: CommitLogTopic, number: int, text: str) -> DelayedMessage | None:
        """None: something in them must be looked at more closely."""
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
            return None  # `sending` will hear it too, and tell
        if waiting is None or properties[name] != value:  # a level is stored as the number that it stands for
            return None
        written += _WAY % (topic.raw_name, number)
        if TIMER_OUT_MS in properties:
            written += _TIME % waiting.code
        return DelayedMessage(waiting, unique, written, keys)
