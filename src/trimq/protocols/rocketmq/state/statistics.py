"""Messages and bytes sent and read in the last minute, hour and day, by topic and by group. Counted on the message
path; no background task."""

from __future__ import annotations

from typing import NamedTuple

_STEP_MS = 10_000
_HOUR_MS = 3_600_000
_DAY_MS = 24 * _HOUR_MS
# Width of a step, and number of steps kept. The hours must reach back to the start of yesterday.
_KEPT = ((_STEP_MS, 60), (600_000, 6), (_HOUR_MS, 49))


class TrafficSum(NamedTuple):
    messages: int = 0
    bytes: int = 0


class TrafficWindows(NamedTuple):
    minute: TrafficSum
    hour: TrafficSum
    day: TrafficSum


class TrafficCounter:
    """Messages and bytes counted at one point since the broker started."""

    __slots__ = ("_at", "_bytes", "_kept", "_messages", "_past")

    def __init__(self) -> None:
        self._at = 0
        self._messages = 0
        self._bytes = 0
        self._past = TrafficSum()
        self._kept: tuple[dict[int, TrafficSum], ...] = ({}, {}, {})

    def add(self, now_ms: int, messages: int, size: int) -> None:
        at = now_ms // _STEP_MS
        if at != self._at:
            self._fold()
            self._at = at
        self._messages += messages
        self._bytes += size

    def _fold(self) -> None:
        """Adds the finished step to the kept steps."""
        if not self._messages:
            return
        done = TrafficSum(self._messages, self._bytes)
        self._messages = self._bytes = 0
        self._past = _plus(self._past, done)
        for (width_ms, count), kept in zip(_KEPT, self._kept, strict=True):
            step = self._at * _STEP_MS // width_ms
            kept[step] = _plus(kept.get(step, TrafficSum()), done)
            while len(kept) > count:
                del kept[min(kept)]

    def total(self) -> TrafficSum:
        return _plus(self._past, TrafficSum(self._messages, self._bytes))

    def since(self, now_ms: int, step: int, count: int) -> TrafficSum:
        """Sum of the last `count` steps of the width number `step`, including the current step."""
        self._fold()
        first = now_ms // _KEPT[step][0] - count
        found = [each for at, each in self._kept[step].items() if at > first]
        return TrafficSum(sum(each.messages for each in found), sum(each.bytes for each in found))

    def rate(self, now_ms: int, steps: int) -> float:
        """Messages per second in the last `steps` times 10 seconds."""
        return self.since(now_ms, 0, steps).messages / (steps * _STEP_MS / 1000)

    def windows(self, now_ms: int) -> TrafficWindows:
        return TrafficWindows(self.since(now_ms, 0, 6), self.since(now_ms, 1, 6), self.since(now_ms, 2, 24))

    def before_today(self, now_ms: int, days: int) -> int:
        """Messages counted before the start of today, or before the start of the day `days` earlier."""
        hours = now_ms % _DAY_MS // _HOUR_MS + 1 + 24 * days
        return self.total().messages - self.since(now_ms, 2, hours).messages

    def merge(self, other: TrafficCounter) -> None:
        other._fold()
        self._fold()
        self._past = _plus(self._past, other._past)
        for mine, theirs in zip(self._kept, other._kept, strict=True):
            for step, each in theirs.items():
                mine[step] = _plus(mine.get(step, TrafficSum()), each)


def _plus(one: TrafficSum, other: TrafficSum) -> TrafficSum:
    return TrafficSum(one.messages + other.messages, one.bytes + other.bytes)


class Traffic:
    """Traffic counters of the broker. Groups are counted per topic. Counters of deleted topics and groups still count
    in the totals."""

    def __init__(self) -> None:
        self._sent: dict[str, TrafficCounter] = {}
        self._read: dict[tuple[str, str], TrafficCounter] = {}
        self._returned: dict[tuple[str, str], TrafficCounter] = {}
        self._sent_before, self._read_before = TrafficCounter(), TrafficCounter()
        self.found, self.missed = TrafficCounter(), TrafficCounter()
        """Requests for messages that found some, and that found none. `longest_read_ms`: time of the slowest."""
        self.longest_read_ms = 0

    def count_sent(self, topic: str, now_ms: int, size: int, messages: int = 1) -> None:
        flow = self._sent.get(topic)
        if flow is None:
            flow = self._sent[topic] = TrafficCounter()
        flow.add(now_ms, messages, size)

    def count_read(self, topic: str, group: str, now_ms: int, messages: int, size: int) -> None:
        flow = self._read.get((topic, group))
        if flow is None:
            flow = self._read[topic, group] = TrafficCounter()
        flow.add(now_ms, messages, size)

    def count_request(self, now_ms: int, has_found: bool, took_ms: int) -> None:
        """Counts a request for messages. A long poll counts each time that it looks for messages."""
        (self.found if has_found else self.missed).add(now_ms, 1, 0)
        if took_ms > self.longest_read_ms:
            self.longest_read_ms = took_ms

    def count_returned(self, topic: str, group: str, now_ms: int) -> None:
        self._returned.setdefault((topic, group), TrafficCounter()).add(now_ms, 1, 0)

    def sent(self, topic: str) -> TrafficCounter | None:
        return self._sent.get(topic)

    def read(self, topic: str, group: str) -> TrafficCounter | None:
        return self._read.get((topic, group))

    def returned(self, topic: str, group: str) -> TrafficCounter | None:
        return self._returned.get((topic, group))

    def all_sent(self) -> TrafficCounter:
        return _merged(self._sent_before, *self._sent.values())

    def all_read(self) -> TrafficCounter:
        return _merged(self._read_before, *self._read.values())

    def forget_topic(self, topic: str) -> None:
        if (flow := self._sent.pop(topic, None)) is not None:
            self._sent_before.merge(flow)
        self._forget({key for key in (*self._read, *self._returned) if key[0] == topic})

    def forget_group(self, group: str) -> None:
        self._forget({key for key in (*self._read, *self._returned) if key[1] == group})

    def _forget(self, keys: set[tuple[str, str]]) -> None:
        for key in keys:
            self._returned.pop(key, None)
            if (flow := self._read.pop(key, None)) is not None:
                self._read_before.merge(flow)


def _merged(*flows: TrafficCounter) -> TrafficCounter:
    found = TrafficCounter()
    for flow in flows:
        found.merge(flow)
    return found
