"""AMQP 0-9-1: generated sequences on TriMQ and on a genuine RabbitMQ, and the differences that stay."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.amqp_peer import rabbitmq_in
from differential.amqp_driver import AmqpDriver
from differential.amqp_generator import generate
from differential.sequences import Driver, Explained
from tools.broker import running

__all__ = ["EXPLAINED", "PAGE", "brokers", "generate"]

PAGE = "docs/amqp.md"
EXPLAINED: list[Explained] = []


@contextmanager
def brokers(folder: Path) -> Iterator[tuple[Driver, Driver]]:
    """Starts TriMQ and RabbitMQ, each on a free port."""
    ours = folder / "trimq"
    ours.mkdir()
    with running(ours) as addresses, rabbitmq_in(folder / "rabbitmq") as peer:
        yield AmqpDriver(int(addresses["amqp"].rpartition(":")[2])), AmqpDriver(peer.port)
