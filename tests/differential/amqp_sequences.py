"""AMQP 0-9-1: generated sequences on TriMQ and on a genuine RabbitMQ, and the differences that stay."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.amqp_peer import rabbitmq_in
from differential.amqp_driver import AmqpDriver
from differential.amqp_generator import generate
from differential.amqp_policies import definitions, set_policies
from differential.sequences import Difference, Driver, Explained
from tools.broker import running

__all__ = ["EXPLAINED", "PAGE", "brokers", "generate"]

PAGE = "docs/amqp.md"


def _same_beginning(pattern: str) -> Callable[[Difference], bool]:
    """Applies to reply texts that are equal as far as the pattern matches: RabbitMQ continues with an Erlang term."""

    def applies(found: Difference) -> bool:
        if not (
            found.path.endswith(".replies[].text") and isinstance(found.ours, str) and isinstance(found.theirs, str)
        ):
            return False
        ours, theirs = re.match(pattern, found.ours), re.match(pattern, found.theirs)
        return ours is not None and theirs is not None and ours[0] == theirs[0]

    return applies


EXPLAINED = [
    Explained(
        "reason-of-invalid-argument",
        _same_beginning(r"PRECONDITION_FAILED - invalid arg '[^']+' for \w+ '[^']+' in vhost '/': "),
    ),
    Explained(
        "value-of-inequivalent-argument",
        _same_beginning(r"PRECONDITION_FAILED - inequivalent arg 'x-[^']+' for \w+ '[^']+' in vhost '/': received "),
    ),
]


@contextmanager
def brokers(folder: Path) -> Iterator[tuple[Driver, Driver]]:
    """Starts TriMQ and RabbitMQ, each on a free port."""
    ours = folder / "trimq"
    ours.mkdir()
    with running(ours) as addresses, rabbitmq_in(folder / "rabbitmq", definitions()) as peer:
        set_policies(addresses["http"])
        yield AmqpDriver(int(addresses["amqp"].rpartition(":")[2])), AmqpDriver(peer.port)
