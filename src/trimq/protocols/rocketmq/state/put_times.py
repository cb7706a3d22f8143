"""Times that messages need from their arrival until they may be acknowledged: the greatest since the start, and how
many took how long in the last full minute. Measured once for all messages of a pass."""

from __future__ import annotations

from collections import Counter

_MINUTE_MS = 60_000
_LONGEST_MS = 10_001  # longer times are counted as this

# Upper bounds of the buckets that Apache RocketMQ shows, in milliseconds, and their names.
_BUCKETS = (
    (0, "<=0ms"),
    (10, "0~10ms"),
    (50, "10~50ms"),
    (100, "50~100ms"),
    (200, "100~200ms"),
    (500, "200~500ms"),
    (1000, "500ms~1s"),
    (2000, "1~2s"),
    (3000, "2~3s"),
    (4000, "3~4s"),
    (5000, "4~5s"),
    (10_000, "5~10s"),
    (_LONGEST_MS, "10s~"),
)


class PutTimes:
    def __init__(self) -> None:
        self.longest_ms = 0
        self.failed = 0
        """Messages that were not stored, or not in time."""
        self._minute: int | None = None
        self._now: Counter[int] = Counter()
        self._last: Counter[int] | None = None

    def observe(self, now_ms: int, took_ms: int, messages: int) -> None:
        self._turn(now_ms)
        self.longest_ms = max(self.longest_ms, took_ms)
        self._now[min(took_ms, _LONGEST_MS)] += messages

    def _turn(self, now_ms: int) -> None:
        minute = now_ms // _MINUTE_MS
        if self._minute is None:
            self._minute = minute
        elif minute > self._minute:
            self._last = self._now if minute == self._minute + 1 else Counter()
            self._minute, self._now = minute, Counter()

    def distribution(self, now_ms: int) -> str:
        """Messages of the last full minute by time, as Apache RocketMQ shows them: "null" in the first minute."""
        self._turn(now_ms)
        if self._last is None:
            return "null"
        shown, low_ms = [], -1
        for high_ms, name in _BUCKETS:
            count = sum(messages for took_ms, messages in self._last.items() if low_ms < took_ms <= high_ms)
            shown.append(f"[{name}]:{count} ")
            low_ms = high_ms
        return "".join(shown)

    def percentile(self, now_ms: int, share: float) -> float:
        """Time in milliseconds within which this share of the messages of the last full minute was stored."""
        self._turn(now_ms)
        last = self._last or Counter()
        wanted, seen = share * last.total(), 0
        for took_ms in sorted(last):
            seen += last[took_ms]
            if seen >= wanted:
                return took_ms
        return 0
