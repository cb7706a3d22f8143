"""Sending, synchronously and pipelined, and pulling a backlog, on Apache RocketMQ and TriMQ over remoting."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

from bench.bare_loop import bare_loop
from bench.comparison import OURS, WorkGoals, work_figures
from bench.figures import Figure
from bench.lanes import drive
from bench.processes import ChildFailed
from bench.rocketmq_sides import PULLING, QUEUES, ROCKETMQ, SENDING, SHOWN, Side, Sides, topic_on
from bench.rocketmq_sizes import RocketMQSizes
from bench.rocketmq_wire import Client, PullLane, SendLane, encode_lanes, encode_pull, encode_send
from bench.turns import Outcome, take_turns, timed

_Work = Callable[[Side], Outcome]

BODIES = (100, 1000)
PIPELINED_CONNECTIONS = 4
PULLING_CONNECTIONS = 4
UNIT_BYTES = 91
"""Stored bytes of a message besides its body, topic and properties."""
BATCH = 32
"""Messages per pull: the most that a broker returns by default."""


def told(connections: int) -> str:
    return "1 connection" if connections == 1 else f"{connections} connections"


def measure_send(sizes: RocketMQSizes, sides: Sides) -> Iterator[Figure]:
    """Measures synchronous producers."""
    for connections in sizes.connections:
        for body_bytes in BODIES:

            def work(side: Side, shape: tuple[int, int] = (connections, body_bytes)) -> Outcome:
                return send(sizes, side, *shape, depth=1)

            yield from _figures(f"send {body_bytes} B, {told(connections)}", sizes, sides, work, SENDING)


def measure_pipelined(sizes: RocketMQSizes, sides: Sides) -> Iterator[Figure]:
    for body_bytes in BODIES:

        def work(side: Side, body_bytes: int = body_bytes) -> Outcome:
            return send(sizes, side, PIPELINED_CONNECTIONS, body_bytes, sizes.depth)

        name = f"send {body_bytes} B, {told(PIPELINED_CONNECTIONS)} with {sizes.depth} under way on each"
        yield from _figures(name, sizes, sides, work, SENDING)


def measure_pull(sizes: RocketMQSizes, sides: Sides) -> Iterator[Figure]:
    for body_bytes in BODIES:

        def work(side: Side, body_bytes: int = body_bytes) -> Outcome:
            return pull_new(sizes, side, body_bytes)

        name = f"pull {body_bytes} B by {BATCH}, {told(PULLING_CONNECTIONS)}"
        yield from _figures(name, sizes, sides, work, PULLING)


def measure_floor(sizes: RocketMQSizes, sides: Sides) -> Iterator[Figure]:
    """Measures a Python process that only responds, in place of TriMQ: no broker in Python costs less."""
    body_bytes = BODIES[0]
    ways = [*((connections, 1) for connections in sizes.connections), (PIPELINED_CONNECTIONS, sizes.depth)]
    with bare_loop() as bare:
        for connections, depth in ways:

            def work(side: Side, connections: int = connections, depth: int = depth) -> Outcome:
                if side is not bare:
                    return send(sizes, side, connections, body_bytes, depth)
                lanes = _lanes(side, "no topic", connections, body_bytes, depth)
                return timed(side, lambda: drive(lanes, sizes.most_messages, sizes.seconds))

            results = take_turns([sides.rocketmq, bare], sizes.rounds, work)
            results[OURS] = results[bare.name]
            name = f"a bare loop in our place: send {body_bytes} B, {told(connections)}"
            under_way = f" with {depth} under way on each" if depth > 1 else ""
            yield from work_figures(f"{name}{under_way}, {sides.flush}", results, ROCKETMQ, SHOWN)


def _figures(name: str, sizes: RocketMQSizes, sides: Sides, work: _Work, goals: WorkGoals) -> Iterator[Figure]:
    results = take_turns(sides.both(), sizes.rounds, work)
    return work_figures(f"{name}, {sides.flush}", results, ROCKETMQ, SHOWN, goals)


def send(sizes: RocketMQSizes, side: Side, connections: int, body_bytes: int, depth: int) -> Outcome:
    with topic_on(side) as topic:
        lanes = _lanes(side, topic, connections, body_bytes, depth)
        return timed(side, lambda: drive(lanes, sizes.most_messages, sizes.seconds) - _busy(lanes))


def _lanes(side: Side, topic: str, connections: int, body_bytes: int, depth: int) -> list[SendLane]:
    requests = encode_lanes(topic, QUEUES, connections, body_bytes)
    return [SendLane(side.address, own, depth) for own in requests]


def _busy(lanes: Sequence[SendLane]) -> int:
    return sum(lane.busy for lane in lanes)


def fill(side: Side, topic: str, queues: int, body_bytes: int, count: int) -> None:
    """Sends `count` messages to each queue, in turn as with many producers, and waits until they can be pulled."""
    requests = [encode_send(topic, number % queues, b"x" * body_bytes, number) for number in range(1024 * queues)]
    lane = SendLane(side.address, requests, min(64, count))
    drive([lane], count * queues, 120.0)
    if lane.busy:  # it is unknown which were refused: send as many to each queue
        drive([SendLane(side.address, requests, min(64, lane.busy))], lane.busy * queues, 120.0)
    with Client(side.address) as client:
        until_s = time.perf_counter() + 30
        while (found := min(client.end(topic, queue) for queue in range(queues))) < count:
            if time.perf_counter() > until_s:
                raise ChildFailed(f"{side.name} has {found} of {count} messages in a queue")
            time.sleep(0.01)


def pull_new(sizes: RocketMQSizes, side: Side, body_bytes: int) -> Outcome:
    each = max(sizes.backlog // PULLING_CONNECTIONS // BATCH, 1) * BATCH
    with topic_on(side) as topic:
        fill(side, topic, PULLING_CONNECTIONS, body_bytes, each)
        lanes = [
            PullLane(
                side.address,
                [encode_pull(topic, queue, offset, BATCH) for offset in range(0, each, BATCH)],
                BATCH * (body_bytes + UNIT_BYTES),
            )
            for queue in range(PULLING_CONNECTIONS)
        ]
        return timed(side, lambda: drive(lanes, sizes.most_messages // BATCH, sizes.seconds) * BATCH)
