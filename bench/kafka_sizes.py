"""Amount of work of a comparison with Kafka: full for stable figures, quick to check that every figure runs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class KafkaSizes:
    warm_seconds: float = 180.0
    """The JIT compiler of a JVM works in the first minutes, in which a request costs several times as much CPU as
    later."""
    rounds: int = 4
    seconds: float = 1.5
    """Maximum duration of one round of one broker."""
    produce_bytes: int = 256 << 20
    small_requests: int = 30_000
    fetch_bytes: int = 2 << 30
    stored_bytes: int = 16 << 20
    client_rounds: int = 2
    client_bytes: int = 64 << 20
    client_messages: int = 300_000
    client_seconds: float = 6.0
    """A round of a librdkafka client ends when the first of these three limits is reached."""
    latency_rounds: int = 3
    latency_seconds: float = 5.0
    latency_rate: int = 1000
    starts: int = 3
    settle_seconds: float = 3.0
    topics: int = 1000


KAFKA_FULL = KafkaSizes()
KAFKA_QUICK = KafkaSizes(
    warm_seconds=0.5,
    rounds=1,
    seconds=0.2,
    produce_bytes=1 << 20,
    small_requests=200,
    fetch_bytes=4 << 20,
    stored_bytes=2 << 20,
    client_rounds=1,
    client_bytes=1 << 20,
    client_messages=1000,
    latency_rounds=1,
    latency_seconds=0.5,
    latency_rate=100,
    starts=1,
    settle_seconds=0.0,
    topics=20,
)
