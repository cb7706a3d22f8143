"""Sends failed messages back to their broker: for another delivery, or to the dead-letter topic of the group."""

from __future__ import annotations

from trimq.client.consuming.offsets import master_of
from trimq.client.consuming.received import Received
from trimq.client.instance import Instance
from trimq.client.timing import Duration, to_milliseconds
from trimq.formats.rocketmq_unit.schedule import parse_levels
from trimq.wire.remoting_codes import RequestCode

LEVELS_MS = parse_levels("1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h")
"""Delay levels of a broker with default settings."""

_BY_POLICY, _NEVER = 0, -1
_TIMEOUT_MS = 5000


def level_for(after_ms: int) -> int:
    """Returns the first level that is at least so long; the last one for anything longer."""
    return next((number for number, level_ms in enumerate(LEVELS_MS, 1) if level_ms >= after_ms), len(LEVELS_MS))


class Returner:
    def __init__(self, instance: Instance, group: str, max_attempts: int) -> None:
        self._instance = instance
        self._group = group
        self._max_attempts = max_attempts

    async def send_back(self, message: Received, after: Duration | None) -> None:
        """Delivers the message again: after this time, rounded up to a delay level, or later with each attempt."""
        await self._return(message, _BY_POLICY if after is None else level_for(to_milliseconds(after)))

    async def dead_letter(self, message: Received) -> None:
        await self._return(message, _NEVER)

    async def _return(self, message: Received, level: int) -> None:
        fields = {
            "offset": str(message.position),
            "group": self._group,
            "delayLevel": str(level),
            "originMsgId": message.id,
            "originTopic": message.topic,
            "unitMode": "false",
            "maxReconsumeTimes": str(self._max_attempts - 1),
        }
        address = master_of(self._instance.routes, message.queue)
        await self._instance.links.ask(address, RequestCode.CONSUMER_SEND_MSG_BACK, fields, timeout_ms=_TIMEOUT_MS)
