"""Who is compared: Kafka, and ours as it can be set up; and how: each does the same work in turn, several rounds, so
that a busy moment of the machine hits all of them. Knows no protocol but the making of topics."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from bench.figures import Figure, Goal
from bench.processes import cpu_s

FLUSHES = ("async", "sync")
KAFKA = "kafka"

_numbers = itertools.count()


@dataclass(frozen=True, slots=True)
class Side:
    """A running broker. `topic_settings` are those with which its topics are made."""

    name: str
    host: str
    port: int
    pid: int
    topic_settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def address(self) -> tuple[str, int]:
        return self.host, self.port

    @property
    def bootstrap(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Sides:
    """Kafka and ours, in one flush mode. `ours` by how closely records are looked at: "full" or "header"."""

    flush: str
    kafka: Side
    ours: Mapping[str, Side]

    def all(self) -> list[Side]:
        return [self.kafka, *self.ours.values()]


@dataclass(frozen=True, slots=True)
class Outcome:
    """Of one round of one side."""

    units: int
    cpu_s: float
    wall_s: float

    @property
    def cpu_us(self) -> float:
        return self.cpu_s / self.units * 1e6

    @property
    def rate(self) -> float:
        return self.units / self.wall_s


Work = Callable[[Side], Outcome]


def timed(side: Side, work: Callable[[], int]) -> Outcome:
    """What `work` costs the broker, which tells how many units it did."""
    wall_s, used_s = time.perf_counter(), cpu_s(side.pid)
    units = work()
    return Outcome(units, cpu_s(side.pid) - used_s, time.perf_counter() - wall_s)


@dataclass(frozen=True, slots=True)
class Result:
    """Of all rounds of one side: the least processor time and the best rate count, since all that disturbs makes them
    worse; the middle ones tell how disturbed they were."""

    outcomes: Sequence[Outcome]

    @property
    def cpu_us(self) -> float:
        return min(outcome.cpu_us for outcome in self.outcomes)

    @property
    def rate(self) -> float:
        return max(outcome.rate for outcome in self.outcomes)

    @property
    def middle_cpu_us(self) -> float:
        return statistics.median(outcome.cpu_us for outcome in self.outcomes)

    @property
    def middle_rate(self) -> float:
        return statistics.median(outcome.rate for outcome in self.outcomes)


def take_turns(sides: Sequence[Side], rounds: int, work: Work) -> dict[str, Result]:
    """By the name of the side. Whoever was first is last in the next round."""
    outcomes: dict[str, list[Outcome]] = {side.name: [] for side in sides}
    for number in range(rounds):
        for side in sides[number % len(sides) :] + sides[: number % len(sides)] if rounds > 1 else sides:
            outcomes[side.name].append(work(side))
    return {name: Result(own) for name, own in outcomes.items()}


def cpu_figure(name: str, ours: Result, kafka: Result, unit: str, goal: Goal | None) -> Figure:
    """Processor time of the broker is judged, the wall clock told."""
    note = f"CPU of the broker, least of {len(ours.outcomes)}; middle {ours.middle_cpu_us:.3g}, Kafka's "
    note += f"{kafka.middle_cpu_us:.3g}; by wall {ours.rate:,.0f}/s, Kafka {kafka.rate:,.0f}/s"
    return Figure(name, ours.cpu_us, f"us/{unit}", kafka.cpu_us, goal, note, KAFKA)


def rate_figure(name: str, ours: Result, kafka: Result, unit: str, goal: Goal | None) -> Figure:
    """The wall clock is judged, processor time told."""
    note = f"wall clock, best of {len(ours.outcomes)}; middle {ours.middle_rate:,.0f}, Kafka's {kafka.middle_rate:,.0f}"
    note += f"; CPU of the broker {ours.cpu_us:.3g} us each, Kafka's {kafka.cpu_us:.3g}"
    return Figure(name, ours.rate, f"{unit}/s", kafka.rate, goal, note, KAFKA)


@contextmanager
def topic_on(side: Side, partitions: int) -> Iterator[str]:
    """A new topic, which is deleted at the end."""
    from confluent_kafka.admin import AdminClient, NewTopic

    name = f"bench-{next(_numbers)}"
    admin = AdminClient({"bootstrap.servers": side.bootstrap, "log_level": 0})
    made = NewTopic(name, partitions, 1, config=dict(side.topic_settings))
    admin.create_topics([made], operation_timeout=30)[name].result(60)
    while len(admin.list_topics(name, timeout=30).topics[name].partitions) < partitions:
        time.sleep(0.01)
    try:
        yield name
    finally:
        admin.delete_topics([name], operation_timeout=30)[name].result(60)
