"""Sending, synchronously and pipelined, and pulling a backlog, on Apache RocketMQ and TriMQ over remoting."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

from bench.bare_loop import bare_loop
from bench.broker_rounds import Outcome, run_rounds, timed
from bench.comparison import OURS, WorkGoals, work_figures
from bench.figures import Figure
from bench.pipelined_load import drive
from bench.processes import ChildFailed
from bench.rocketmq_brokers import PULL_GOALS, QUEUES, ROCKETMQ, SEND_GOALS, TITLE, Broker, Brokers, topic_on
from bench.rocketmq_sizes import RocketMQSizes
from bench.rocketmq_wire import Client, PullPipeline, SendPipeline, encode_pipelines, encode_pull, encode_send

_Work = Callable[[Broker], Outcome]

BODIES = (100, 1000)
PIPELINED_CONNECTIONS = 4
PULLING_CONNECTIONS = 4
UNIT_BYTES = 91
"""Stored bytes of a message besides its body, topic and properties."""
BATCH = 32
"""Messages per pull: the most that a broker returns by default."""


def connections_text(connections: int) -> str:
    return "1 connection" if connections == 1 else f"{connections} connections"


def measure_send(sizes: RocketMQSizes, brokers: Brokers) -> Iterator[Figure]:
    """Measures synchronous producers."""
    for connections in sizes.connections:
        for body_bytes in BODIES:

            def work(broker: Broker, shape: tuple[int, int] = (connections, body_bytes)) -> Outcome:
                return send(sizes, broker, *shape, depth=1)

            yield from _figures(
                f"send {body_bytes} B, {connections_text(connections)}", sizes, brokers, work, SEND_GOALS
            )


def measure_pipelined(sizes: RocketMQSizes, brokers: Brokers) -> Iterator[Figure]:
    for body_bytes in BODIES:

        def work(broker: Broker, body_bytes: int = body_bytes) -> Outcome:
            return send(sizes, broker, PIPELINED_CONNECTIONS, body_bytes, sizes.depth)

        name = f"send {body_bytes} B, {connections_text(PIPELINED_CONNECTIONS)} with {sizes.depth} under way on each"
        yield from _figures(name, sizes, brokers, work, SEND_GOALS)


def measure_pull(sizes: RocketMQSizes, brokers: Brokers) -> Iterator[Figure]:
    for body_bytes in BODIES:

        def work(broker: Broker, body_bytes: int = body_bytes) -> Outcome:
            return pull_new(sizes, broker, body_bytes)

        name = f"pull {body_bytes} B by {BATCH}, {connections_text(PULLING_CONNECTIONS)}"
        yield from _figures(name, sizes, brokers, work, PULL_GOALS)


def measure_floor(sizes: RocketMQSizes, brokers: Brokers) -> Iterator[Figure]:
    """Measures a Python process that only responds, in place of TriMQ: no broker in Python costs less."""
    body_bytes = BODIES[0]
    ways = [*((connections, 1) for connections in sizes.connections), (PIPELINED_CONNECTIONS, sizes.depth)]
    with bare_loop() as bare:
        for connections, depth in ways:

            def work(broker: Broker, connections: int = connections, depth: int = depth) -> Outcome:
                if broker is not bare:
                    return send(sizes, broker, connections, body_bytes, depth)
                pipelines = _make_pipelines(broker, "no topic", connections, body_bytes, depth)
                return timed(broker, lambda: drive(pipelines, sizes.max_messages, sizes.seconds))

            results = run_rounds([brokers.rocketmq, bare], sizes.rounds, work)
            results[OURS] = results[bare.name]
            name = f"a bare loop in our place: send {body_bytes} B, {connections_text(connections)}"
            under_way = f" with {depth} under way on each" if depth > 1 else ""
            yield from work_figures(f"{name}{under_way}, {brokers.flush}", results, ROCKETMQ, TITLE)


def _figures(name: str, sizes: RocketMQSizes, brokers: Brokers, work: _Work, goals: WorkGoals) -> Iterator[Figure]:
    results = run_rounds(brokers.both(), sizes.rounds, work)
    return work_figures(f"{name}, {brokers.flush}", results, ROCKETMQ, TITLE, goals)


def send(sizes: RocketMQSizes, broker: Broker, connections: int, body_bytes: int, depth: int) -> Outcome:
    with topic_on(broker) as topic:
        pipelines = _make_pipelines(broker, topic, connections, body_bytes, depth)
        return timed(broker, lambda: drive(pipelines, sizes.max_messages, sizes.seconds) - _busy(pipelines))


def _make_pipelines(broker: Broker, topic: str, connections: int, body_bytes: int, depth: int) -> list[SendPipeline]:
    requests = encode_pipelines(topic, QUEUES, connections, body_bytes)
    return [SendPipeline(broker.address, own, depth) for own in requests]


def _busy(pipelines: Sequence[SendPipeline]) -> int:
    return sum(pipeline.busy for pipeline in pipelines)


def fill(broker: Broker, topic: str, queues: int, body_bytes: int, count: int) -> None:
    """Sends `count` messages to each queue, in turn as with many producers, and waits until they can be pulled."""
    requests = [encode_send(topic, number % queues, b"x" * body_bytes, number) for number in range(1024 * queues)]
    pipeline = SendPipeline(broker.address, requests, min(64, count))
    drive([pipeline], count * queues, 120.0)
    if pipeline.busy:  # it is unknown which were refused: send as many to each queue
        drive([SendPipeline(broker.address, requests, min(64, pipeline.busy))], pipeline.busy * queues, 120.0)
    with Client(broker.address) as client:
        until_s = time.perf_counter() + 30
        while (found := min(client.end(topic, queue) for queue in range(queues))) < count:
            if time.perf_counter() > until_s:
                raise ChildFailed(f"{broker.name} has {found} of {count} messages in a queue")
            time.sleep(0.01)


def pull_new(sizes: RocketMQSizes, broker: Broker, body_bytes: int) -> Outcome:
    each = max(sizes.backlog // PULLING_CONNECTIONS // BATCH, 1) * BATCH
    with topic_on(broker) as topic:
        fill(broker, topic, PULLING_CONNECTIONS, body_bytes, each)
        pipelines = [
            PullPipeline(
                broker.address,
                [encode_pull(topic, queue, offset, BATCH) for offset in range(0, each, BATCH)],
                BATCH * (body_bytes + UNIT_BYTES),
            )
            for queue in range(PULLING_CONNECTIONS)
        ]
        return timed(broker, lambda: drive(pipelines, sizes.max_messages // BATCH, sizes.seconds) * BATCH)
