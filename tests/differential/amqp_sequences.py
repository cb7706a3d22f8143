"""AMQP 0-9-1: generated sequences on TriMQ and on a genuine RabbitMQ, and the differences that stay."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.amqp_peer import rabbitmq_in
from differential.amqp_driver import AmqpDriver
from differential.amqp_generator import generate
from differential.amqp_policies import definitions, set_policies
from differential.sequences import MISSING, Difference, Driver, Explained
from tools.broker import running

__all__ = ["EXPLAINED", "PAGE", "brokers", "generate"]

PAGE = "docs/amqp.md"


_HEADER_OF_0_9_1 = "414d515000000901"
_MIN_FRAME_MAX = 8192
_MAX_MESSAGE_BYTES = 128 * 1024 * 1024  # the default of `amqp.message_bytes`
_MAX_BYTES_OF_RABBITMQ = 512 * 1024 * 1024


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
    return any(size is not None and 4096 <= size < _MIN_FRAME_MAX for size in chosen)


def _is_unenforceable(found: Difference) -> bool:
    """Applies to the refusal of an argument that RabbitMQ stores without effect."""
    refused = r"invalid arg 'x-(delivery-limit|delayed-retry-\w+)' for queue '[^']+' in vhost '/': "
    return found.step.request == "queue.declare" and re.search(refused, json.dumps(found.ours)) is not None


def _is_internal_error(found: Difference) -> bool:
    """Applies where RabbitMQ fails: it closes the connection with the code 541."""
    if found.path.endswith(".code"):
        return bool(found.theirs == 541 != found.ours)
    return '"code": 541' in json.dumps(found.theirs)


def _is_lost_property(found: Difference) -> bool:
    """Applies to properties that messages of RabbitMQ's streams lose, as they are stored in the format of AMQP 1.0."""
    if not re.search(r"\.delivered\..*\.properties\.", found.path):
        return False
    if found.path.endswith(".cluster_id"):
        return found.theirs == MISSING
    is_header = ".headers." in found.path
    return is_header and (
        (found.theirs == MISSING and found.ours[0] in "AFD") or (found.ours, found.theirs) == ("x", "S")
    )


def _is_announced_size(found: Difference) -> bool:
    """Applies to a message that is too large as its header says, of which no body was sent yet."""
    if found.step.request != "frames":
        return False
    sizes = [each.get("size", 0) for each in found.step.arguments["frames"]]
    return any(_MAX_MESSAGE_BYTES < size <= _MAX_BYTES_OF_RABBITMQ for size in sizes)


def _is_strict_limit(found: Difference) -> bool:
    """Applies to counts and confirms after a quorum queue was declared that refuses messages when it is full."""
    is_count = re.search(r"\.(acked|nacked|messages|delivered|replies)\b", found.path) is not None
    return is_count and any(
        step.request == "queue.declare"
        and step.arguments.get("args", {}).get("x-queue-type") == "quorum"
        and (
            step.arguments["args"].get("x-overflow") == "reject-publish"
            or step.arguments.get("queue", "").startswith("p-reject")
        )
        for step in found.earlier
    )


def _is_shortcut(found: Difference) -> bool:
    """Applies to a method on a channel that is not open, which means the queue that was declared last."""
    return "raw" in found.step.arguments and "no previously declared queue" in json.dumps(found.theirs)


def _is_lost_nack(found: Difference) -> bool:
    """Applies to the nack of the first message after confirm.select, on a channel that published before it: RabbitMQ
    never sends it."""
    place = found.path.split(".")[1] if "." in found.path else ""
    ours, theirs = ((answer or {}).get(place, {}) for answer in (found.our_answer, found.their_answer))
    if set(ours.get("nacked", ())) - set(theirs.get("nacked", ())) != {1}:
        return False
    channel = [step for step in found.earlier if f"{step.connection}/{step.arguments.get('ch')}" == place]
    requests = [step.request for step in channel]
    return "confirm.select" in requests and "basic.publish" in requests[: requests.index("confirm.select")]


EXPLAINED = [
    Explained("login-mechanisms", _is_mechanisms),
    Explained("protocol-header", _is_protocol_header, is_last=True),
    Explained("smallest-frame-size", _is_small_frame_max),
    Explained("unenforceable-argument", _is_unenforceable, is_last=True),
    Explained("internal-error", _is_internal_error, is_last=True),
    Explained("announced-size", _is_announced_size, is_last=True),
    Explained("strict-limit", _is_strict_limit, is_last=True),
    Explained("properties-of-streams", _is_lost_property),
    Explained("lost-nack", _is_lost_nack),
    Explained("shortcut-on-closed-channel", _is_shortcut, is_last=True),
]


@contextmanager
def brokers(folder: Path) -> Iterator[tuple[Driver, Driver]]:
    """Starts TriMQ and RabbitMQ, each on a free port."""
    ours = folder / "trimq"
    ours.mkdir()
    with running(ours) as addresses, rabbitmq_in(folder / "rabbitmq", definitions()) as peer:
        set_policies(addresses["http"])
        yield AmqpDriver(int(addresses["amqp"].rpartition(":")[2])), AmqpDriver(peer.port)
