"""Health of brokers as sends see it: how fast each responds, and until when a slow or failed one is left out."""

from __future__ import annotations

from collections.abc import Callable

from trimq.client.messages import MessageQueue

OUTAGES_MS = ((15_000, 30_000), (5000, 10_000), (3000, 6000), (1800, 5000), (550, 2000))
"""Response time from which on a broker is left out, and for how long, as in Apache RocketMQ 5.5."""

ERROR_COUNTS_MS = 15_000

_WEIGHT = 0.3  # of the latest response in the average
_STALE_MS = 1000  # an average halves for each second without a send: a recovered broker is back within 10
_LEAST_DIFFERENCE_MS = 2.0


def outage_ms(response_ms: int) -> int:
    """Returns for how long a broker with this response time is left out."""
    return next((out_ms for from_ms, out_ms in OUTAGES_MS if response_ms >= from_ms), 0)


class BrokerHealth:
    """Knows brokers by name. `avoid_slow` False: nobody is left out."""

    def __init__(self, now_ms: Callable[[], int], avoid_slow: bool = True) -> None:
        self._now_ms = now_ms
        self._avoid_slow = avoid_slow
        self._out_until_ms: dict[str, int] = {}
        self._averages: dict[str, tuple[float, int]] = {}

    @property
    def has_outages(self) -> bool:
        return bool(self._out_until_ms)

    def record(self, broker: str, response_ms: int, now_ms: int) -> None:
        """Records the response time of a send that ended now."""
        average: float = response_ms
        if broker in self._averages:
            known_ms = self._expected_ms(broker, now_ms)
            average = known_ms + _WEIGHT * (response_ms - known_ms)
        self._averages[broker] = average, now_ms
        if response_ms >= OUTAGES_MS[-1][0]:
            if self._avoid_slow:
                self._out_until_ms[broker] = now_ms + outage_ms(response_ms)
        elif self._out_until_ms and broker in self._out_until_ms:
            del self._out_until_ms[broker]

    def failed(self, broker: str) -> None:
        self.record(broker, ERROR_COUNTS_MS, self._now_ms())

    def usable(self, queues: tuple[MessageQueue, ...]) -> tuple[MessageQueue, ...]:
        """Returns the queues of brokers that are not left out; if there are none, those of the least bad broker."""
        now_ms = self._now_ms()
        for broker in [broker for broker, until_ms in self._out_until_ms.items() if until_ms <= now_ms]:
            del self._out_until_ms[broker]
        out = self._out_until_ms
        found = tuple([queue for queue in queues if queue.broker not in out])
        if found:
            return found
        best = min((queue.broker for queue in queues), key=lambda broker: out[broker])
        return tuple([queue for queue in queues if queue.broker == best])

    def fastest(self, queues: tuple[MessageQueue, ...]) -> tuple[MessageQueue, ...]:
        """Returns the queues of the brokers with the least latency; close ones count as equal."""
        brokers = {queue.broker for queue in queues}
        if len(brokers) == 1:
            return queues
        now_ms = self._now_ms()
        expected = {broker: self._expected_ms(broker, now_ms) for broker in brokers}
        limit = min(expected.values()) + _LEAST_DIFFERENCE_MS
        return tuple([queue for queue in queues if expected[queue.broker] <= limit])

    def _expected_ms(self, broker: str, now_ms: int) -> float:
        """Expected response time: the average, halved for each second without a send."""
        average, at_ms = self._averages.get(broker, (0.0, now_ms))
        return float(average / 2 ** ((now_ms - at_ms) // _STALE_MS))
