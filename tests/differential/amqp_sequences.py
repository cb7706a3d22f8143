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
from differential.amqp_policies import POLICIES, definitions, set_policies
from differential.sequences import MISSING, Difference, Driver, Explained, Step
from tools.broker import running

__all__ = ["EXPLAINED", "PAGE", "brokers", "generate"]

PAGE = "docs/amqp.md"


_HEADER_OF_0_9_1 = "414d515000000901"
_MIN_FRAME_MAX = 8192
_MAX_MESSAGE_BYTES = 128 * 1024 * 1024  # the default of `amqp.message_bytes`
_MAX_BYTES_OF_RABBITMQ = 512 * 1024 * 1024
_HEADER_FRAME = 2
_INTERNAL_ERROR = '"code": 541'


def _is_mechanisms(found: Difference) -> bool:
    ours, theirs = str(found.ours).split(), str(found.theirs).split()
    return found.path.endswith(".mech") and set(theirs) == {*ours, "ANONYMOUS"}


def _is_protocol_header(found: Difference) -> bool:
    """Applies to the answer to a protocol header other than that of 0-9-1."""
    if found.step.request != "handshake" or _HEADER_OF_0_9_1 not in json.dumps(found.our_answer):
        return False
    return any(each.get("raw", _HEADER_OF_0_9_1) != _HEADER_OF_0_9_1 for each in found.step.arguments["sent"])


def _is_small_frame_max(found: Difference) -> bool:
    """Applies where a client chose a frame size that only the specification allows."""
    if found.step.request != "handshake" or (found.ours, found.theirs) != ("open", "closed"):
        return False
    chosen = [each["fields"].get("frame_max") for each in found.step.arguments["sent"] if "method" in each]
    return any(size is not None and 4096 <= size < _MIN_FRAME_MAX for size in chosen)


def _is_unenforceable(found: Difference) -> bool:
    """Applies to the refusal of an argument that RabbitMQ stores without effect: it declares the queue."""
    refused = r"invalid arg 'x-(delivery-limit|delayed-retry-\w+)' for queue '[^']+' in vhost '/': "
    if found.step.request != "queue.declare" or ".close" in json.dumps(found.their_answer):
        return False
    return re.search(refused, json.dumps(found.our_answer)) is not None


def _is_internal_error(found: Difference) -> bool:
    """Applies to requests at which RabbitMQ closes the connection with the code 541: those of the documented kinds."""
    request, fields = found.step.request, found.step.arguments
    arguments = fields.get("args", {})
    if _INTERNAL_ERROR not in json.dumps(found.their_answer):
        return False
    if request == "basic.cancel_ok":
        return True
    if request == "queue.declare":
        return "x-queue-master-locator" in arguments
    if request == "basic.consume":
        return "x-stream-offset" in arguments and not isinstance(arguments["x-stream-offset"], str)
    if request == "basic.publish":
        return '{"$": "D"' in json.dumps(fields.get("properties", {}))
    return request == "frames" and any(each.get("type") == _HEADER_FRAME and each["hex"] for each in fields["frames"])


def _is_lost_property(found: Difference) -> bool:
    """Applies to properties that messages of RabbitMQ's streams lose, as they are stored in the format of AMQP 1.0."""
    if not re.search(r"\.delivered\..*\.properties\.", found.path) or not any(map(_is_stream, found.earlier)):
        return False
    if found.path.endswith(".cluster_id"):
        return found.theirs == MISSING
    is_header = ".headers." in found.path
    return is_header and (
        (found.theirs == MISSING and found.ours[0] in "AFD") or (found.ours, found.theirs) == ("x", "S")
    )


def _is_stream(step: Step) -> bool:
    return step.request == "queue.declare" and step.arguments.get("args", {}).get("x-queue-type") == "stream"


def _is_announced_size(found: Difference) -> bool:
    """Applies to a message that is too large as its header says, of which no body was sent yet."""
    if found.step.request != "frames" or '"code": 311' not in json.dumps(found.our_answer):
        return False
    sizes = [each.get("size", 0) for each in found.step.arguments["frames"]]
    return any(_MAX_MESSAGE_BYTES < size <= _MAX_BYTES_OF_RABBITMQ for size in sizes)


def _is_strict_limit(found: Difference) -> bool:
    """Applies where RabbitMQ has more messages than the limit in a quorum queue that refuses messages when it is full,
    or confirms them."""
    full = {step.arguments.get("queue", ""): step for step in found.earlier if _refuses_when_full(step)}
    place, _, rest = found.path.removeprefix(".").partition(".")
    if place == "queues":
        step = full.get(rest.removesuffix(".messages"))
        return step is not None and found.ours < found.theirs and found.theirs > _max_length(step)
    if not full or not rest.startswith(("acked", "nacked")):
        return False
    ours, theirs = ((answer or {}).get(place, {}) for answer in (found.our_answer, found.their_answer))
    return set(theirs.get("nacked", ())) < set(ours.get("nacked", ()))


def _refuses_when_full(step: Step) -> bool:
    arguments = step.arguments.get("args", {})
    if step.request != "queue.declare" or arguments.get("x-queue-type") != "quorum":
        return False
    return arguments.get("x-overflow") == "reject-publish" or step.arguments.get("queue", "").startswith("p-reject")


def _max_length(step: Step) -> int:
    """Limit of a declared queue in messages; 0 if it has a limit in bytes only."""
    length = step.arguments.get("args", {}).get("x-max-length", 0)
    limits = [length] if isinstance(length, int) and not isinstance(length, bool) and length else []
    if step.arguments.get("queue", "").startswith("p-reject"):
        limits.append(POLICIES["p-reject"]["max-length"])
    return min(limits, default=0)


def _is_shortcut(found: Difference) -> bool:
    """Applies to a method on a channel that is not open, which means the queue that was declared last."""
    return "raw" in found.step.arguments and "no previously declared queue" in json.dumps(found.their_answer)


def _is_lost_nack(found: Difference) -> bool:
    """Applies to the nack of the first message after confirm.select, on a channel that published before it: RabbitMQ
    never sends it."""
    if "." not in found.path or not isinstance(found.our_answer, dict) or not isinstance(found.their_answer, dict):
        return False
    place = found.path.split(".")[1]
    ours, theirs = (answer.get(place, {}) for answer in (found.our_answer, found.their_answer))
    if set(ours.get("nacked", ())) - set(theirs.get("nacked", ())) != {1}:
        return False
    channel = [step for step in found.earlier if f"{step.connection}/{step.arguments.get('ch')}" == place]
    requests = [step.request for step in channel]
    return "confirm.select" in requests and "basic.publish" in requests[: requests.index("confirm.select")]


def _is_offered_again(found: Difference) -> bool:
    """Applies to the number of deliveries of a message after the end of a connection with consumers on several
    channels."""
    if not re.search(r"\.headers\.x-(acquired|delivery)-count(\[\])?$", found.path) or not found.ours < found.theirs:
        return False
    for at, step in enumerate(found.earlier):
        if step.request in ("drop", "connect", "connection.close", "frames") or "raw" in step.arguments:
            before = [each for each in found.earlier[:at] if each.connection == step.connection]
            if len({each.arguments.get("ch") for each in before if each.request == "basic.consume"}) > 1:
                return True
    return False


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
    Explained("offered-again", _is_offered_again),
]


@contextmanager
def brokers(folder: Path) -> Iterator[tuple[Driver, Driver]]:
    """Starts TriMQ and RabbitMQ, each on a free port."""
    ours = folder / "trimq"
    ours.mkdir()
    with running(ours) as addresses, rabbitmq_in(folder / "rabbitmq", definitions()) as peer:
        set_policies(addresses["http"])
        yield AmqpDriver(int(addresses["amqp"].rpartition(":")[2])), AmqpDriver(peer.port)
