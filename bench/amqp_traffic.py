"""Publishing with confirms and consuming with single acknowledgements, separately and concurrently, on RabbitMQ and
TriMQ."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack

from bench.amqp_brokers import Broker, Brokers, queue_on, work_figures
from bench.amqp_load import Consumer, Publisher, drive
from bench.amqp_sizes import AmqpSizes
from bench.amqp_wire import Client
from bench.broker_rounds import Outcome, run_rounds, timed
from bench.figures import Figure
from bench.processes import ChildFailed

BODIES = (100, 1000)
PREFETCHES = (100, 1000)
WINDOW = 1000
"""Maximum number of unconfirmed messages, over all connections."""


def connections_text(connections: int) -> str:
    return "1 connection" if connections == 1 else f"{connections} connections"


def measure_publish(sizes: AmqpSizes, brokers: Brokers) -> Iterator[Figure]:
    for connections in (1, sizes.connections):
        for body_bytes in BODIES:
            window = WINDOW // connections

            def work(broker: Broker, shape: tuple[int, int, int] = (connections, body_bytes, window)) -> Outcome:
                return publish(sizes, brokers.kind, broker, *shape)

            name = f"publish {body_bytes} B, confirmed, {connections_text(connections)}, {brokers.flush}"
            yield from work_figures(name, run_rounds(brokers.both(), sizes.rounds, work), has_goals=True)


def measure_alone(sizes: AmqpSizes, brokers: Brokers) -> Iterator[Figure]:
    """Measures publishers that wait for each confirm."""
    for connections in (1, sizes.connections):
        for body_bytes in BODIES:

            def work(broker: Broker, shape: tuple[int, int] = (connections, body_bytes)) -> Outcome:
                return publish(sizes, brokers.kind, broker, *shape, 1)

            name = f"publish {body_bytes} B, one confirm at a time, {connections_text(connections)}, {brokers.flush}"
            yield from work_figures(name, run_rounds(brokers.both(), sizes.rounds, work), has_goals=False)


def measure_consume(sizes: AmqpSizes, brokers: Brokers) -> Iterator[Figure]:
    for connections in (1, sizes.connections):
        for body_bytes in BODIES:
            for prefetch in PREFETCHES:

                def work(broker: Broker, shape: tuple[int, int, int] = (connections, body_bytes, prefetch)) -> Outcome:
                    return consume_new(sizes, brokers.kind, broker, *shape)

                name = (
                    f"consume {body_bytes} B, prefetch {prefetch:,}, {connections_text(connections)}, {brokers.flush}"
                )
                yield from work_figures(name, run_rounds(brokers.both(), sizes.rounds, work), has_goals=True)


def measure_both(sizes: AmqpSizes, brokers: Brokers) -> Iterator[Figure]:
    for connections in (1, sizes.connections):
        for body_bytes in BODIES:

            def work(broker: Broker, shape: tuple[int, int] = (connections, body_bytes)) -> Outcome:
                return publish_and_consume(sizes, brokers.kind, broker, *shape)

            name = f"publish and consume {body_bytes} B at once, {connections_text(connections)} each, {brokers.flush}"
            yield from work_figures(name, run_rounds(brokers.both(), sizes.rounds, work), has_goals=False)


def publish(sizes: AmqpSizes, kind: str, broker: Broker, connections: int, body_bytes: int, window: int) -> Outcome:
    with queue_on(broker, kind) as queue, ExitStack() as stack:
        most = sizes.max_messages // connections
        publishers = [
            Publisher(stack.enter_context(Client(broker.address)), queue, body_bytes, window, most)
            for _ in range(connections)
        ]

        def load() -> int:
            stop_s = time.perf_counter() + sizes.seconds
            drive(publishers, lambda: all(publisher.is_done for publisher in publishers), stop_s)
            return sum(publisher.confirmed for publisher in publishers)

        return timed(broker, load)


def fill(broker: Broker, queue: str, body_bytes: int, count: int) -> None:
    with Client(broker.address) as client:
        publisher = Publisher(client, queue, body_bytes, WINDOW, count)
        drive([publisher], lambda: publisher.is_done)
        until_s = time.perf_counter() + 10
        while (found := client.count(queue)) < count:  # a quorum queue updates its count with a delay
            if time.perf_counter() > until_s:
                raise ChildFailed(f"{broker.name} has {found} of {count} messages")
            time.sleep(0.01)


def consume_new(
    sizes: AmqpSizes, kind: str, broker: Broker, connections: int, body_bytes: int, prefetch: int
) -> Outcome:
    with queue_on(broker, kind) as queue:
        fill(broker, queue, body_bytes, sizes.consumed)
        return consume(broker, queue, connections, prefetch, sizes.consumed)


def consume(broker: Broker, queue: str, connections: int, prefetch: int, count: int) -> Outcome:
    """Consumes `count` messages of the queue and acknowledges each. If the queue is empty then, waits until the broker
    has processed the last acknowledgement."""
    with ExitStack() as stack:
        consumers = [
            Consumer(stack.enter_context(Client(broker.address)), queue, prefetch, count + prefetch * connections)
            for _ in range(connections)
        ]

        def load() -> int:
            drive(consumers, lambda: _all_acked(consumers, count))
            delivered = sum(consumer.delivered for consumer in consumers)
            if delivered == count:
                _await_acks(consumers, prefetch)
            return delivered

        return timed(broker, load)


def _await_acks(consumers: list[Consumer], prefetch: int) -> None:
    for consumer in consumers:
        consumer.client.limit(prefetch)


def _all_acked(consumers: list[Consumer], count: int) -> bool:
    return sum(consumer.delivered for consumer in consumers) >= count and all(
        consumer.is_all_acked for consumer in consumers
    )


def publish_and_consume(sizes: AmqpSizes, kind: str, broker: Broker, connections: int, body_bytes: int) -> Outcome:
    with queue_on(broker, kind) as queue, ExitStack() as stack:
        most = sizes.max_messages // connections
        publishers = [
            Publisher(stack.enter_context(Client(broker.address)), queue, body_bytes, WINDOW // connections, most)
            for _ in range(connections)
        ]
        consumers = [
            Consumer(stack.enter_context(Client(broker.address)), queue, PREFETCHES[-1], sizes.max_messages)
            for _ in range(connections)
        ]

        def is_done() -> bool:
            return all(publisher.is_done for publisher in publishers) and _all_acked(
                consumers, sum(publisher.confirmed for publisher in publishers)
            )

        def load() -> int:
            stop_s = time.perf_counter() + sizes.seconds
            drive([*publishers, *consumers], is_done, stop_s)
            _await_acks(consumers, PREFETCHES[-1])
            return sum(publisher.confirmed for publisher in publishers)

        return timed(broker, load)
