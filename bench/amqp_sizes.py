"""Amount of work of a comparison with RabbitMQ: full for stable figures, quick to check that every figure runs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AmqpSizes:
    warm_seconds: float = 10.0
    """Erlang compiles at load time, so the warm-up only has to fill memory and create files."""
    rounds: int = 3
    seconds: float = 1.2
    """Maximum duration of publishing in a round."""
    max_messages: int = 100_000
    consumed: int = 30_000
    connections: int = 20
    latency_rounds: int = 3
    latency_seconds: float = 4.0
    latency_rate: int = 1000
    churned: int = 200
    starts: int = 2
    settle_seconds: float = 3.0
    backlog: int = 10_000_000
    queues: int = 10_000


AMQP_FULL = AmqpSizes()
AMQP_QUICK = AmqpSizes(
    warm_seconds=0.1,
    rounds=1,
    seconds=0.1,
    max_messages=500,
    consumed=500,
    connections=3,
    latency_rounds=1,
    latency_seconds=0.5,
    latency_rate=100,
    churned=3,
    starts=1,
    settle_seconds=0.0,
    backlog=2000,
    queues=20,
)
