"""AMQP 0-9-1: generated sequences on TriMQ and on a genuine RabbitMQ, and the differences that stay."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.amqp_peer import rabbitmq_in
from differential.amqp_driver import AmqpDriver
from differential.amqp_generator import MALFORMED_HEADERS, generate
from differential.amqp_policies import definitions, set_policies
from differential.sequences import Difference, Driver, Explained
from tools.broker import running

__all__ = ["EXPLAINED", "PAGE", "brokers", "generate"]

PAGE = "docs/amqp.md"


_HEADER_OF_0_9_1 = "414d515000000901"
_LEAST_FRAME_MAX = 8192


def _is_mechanisms(found: Difference) -> bool:
    ours, theirs = str(found.ours).split(), str(found.theirs).split()
    return found.path.endswith(".mech") and set(theirs) == {*ours, "ANONYMOUS"}


def _is_protocol_header(found: Difference) -> bool:
    return found.step.request == "handshake" and found.ours == _HEADER_OF_0_9_1


def _is_small_frame_max(found: Difference) -> bool:
    """Applies where a client chose a frame size that only the specification allows."""
    if found.step.request != "handshake" or (found.ours, found.theirs) != ("open", "closed"):
        return False
    chosen = [each["fields"].get("frame_max") for each in found.step.arguments["sent"] if "method" in each]
    return any(size is not None and 4096 <= size < _LEAST_FRAME_MAX for size in chosen)


def _is_unenforceable(found: Difference) -> bool:
    """Applies to the refusal of an argument that RabbitMQ stores without effect."""
    if found.step.request != "queue.declare" or not isinstance(found.ours, str):
        return False
    return re.search(r"invalid arg 'x-(delivery-limit|delayed-retry-\w+)' for queue", found.ours) is not None


def _is_malformed_headers(found: Difference) -> bool:
    return found.step.request == "frames" and found.step.arguments["frames"] == MALFORMED_HEADERS


EXPLAINED = [
    Explained("login-mechanisms", _is_mechanisms),
    Explained("protocol-header", _is_protocol_header, is_last=True),
    Explained("smallest-frame-size", _is_small_frame_max),
    Explained("unenforceable-argument", _is_unenforceable, is_last=True),
    Explained("malformed-headers", _is_malformed_headers, is_last=True),
]


@contextmanager
def brokers(folder: Path) -> Iterator[tuple[Driver, Driver]]:
    """Starts TriMQ and RabbitMQ, each on a free port."""
    ours = folder / "trimq"
    ours.mkdir()
    with running(ours) as addresses, rabbitmq_in(folder / "rabbitmq", definitions()) as peer:
        set_policies(addresses["http"])
        yield AmqpDriver(int(addresses["amqp"].rpartition(":")[2])), AmqpDriver(peer.port)
