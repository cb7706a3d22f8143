"""Amount of work of a comparison with RocketMQ: full for stable figures, quick to check that every figure runs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RocketMQSizes:
    warm_seconds: float = 90.0
    """Per flush mode: each has a RocketMQ process of its own, and a JVM costs several times as much CPU at first."""
    rounds: int = 4
    seconds: float = 1.5
    """Maximum duration of sending or pulling in a round."""
    max_messages: int = 100_000
    connections: tuple[int, ...] = (1, 16, 64)
    depth: int = 64
    """Requests in flight on a connection that does not wait for each response."""
    backlog: int = 16_000
    latency_rounds: int = 3
    latency_seconds: float = 4.0
    latency_rate: int = 1000
    calls: int = 4000
    """Over gRPC, per round."""
    calls_in_flight: int = 64
    starts: int = 2
    settle_seconds: float = 3.0
    topics: int = 10_000
    delayed: int = 1_000_000
    spare_seconds: float = 10.0
    """Minimum time between the last send and the due time."""
    delayed_seconds: float = 300.0
    """Maximum duration of sending and delivery per broker; values measured until then are reported."""


ROCKETMQ_FULL = RocketMQSizes()
ROCKETMQ_QUICK = RocketMQSizes(
    warm_seconds=0.1,
    rounds=1,
    seconds=0.2,
    max_messages=300,
    connections=(1, 4),
    depth=8,
    backlog=256,
    latency_rounds=1,
    latency_seconds=0.5,
    latency_rate=100,
    calls=50,
    calls_in_flight=8,
    starts=1,
    settle_seconds=0.0,
    topics=20,
    delayed=300,
    spare_seconds=0.3,
)
