"""RocketMQ's C++ client (PyPI `rocketmq`): every kind of send, push and pull consumers. It supports neither
transactions nor offsets by time."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from compat.cables import Cable
from compat.rocketmq_cpp import (
    PATIENCE_S,
    Taken,
    consumer_of,
    message_of,
    producer_of,
    pull,
    send,
    send_at_last,
)
from compat.rocketmq_judges import PAUSES, await_dead_letters, await_waiting

from tools.broker import running
from trimq.testing import Broker


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running(tmp_path_factory.mktemp("broker")) as addresses:
        yield addresses["rocketmq"]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Home folder, in which the client writes its logs."""
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.fixture
def broker() -> Iterator[Broker]:
    """Broker with a clock that the test moves."""
    with Broker() as broker:
        yield broker


@pytest.mark.parametrize("is_orderly", [False, True])
def test_a_push_consumer_gets_all_that_was_sent(names: str, is_orderly: bool) -> None:
    topic = f"pushed-{is_orderly}"
    send(names, topic, 40)
    taken = Taken()
    with consumer_of(names, f"cg-{is_orderly}", topic, taken, orderly=is_orderly):
        taken.wait(40)
    assert sorted(taken.bodies) == sorted(f"body {number}" for number in range(40))
    if is_orderly:  # messages are sent to the queues in turn
        assert sorted(taken.queues) == list(range(4))
        for bodies in taken.queues.values():
            assert bodies == sorted(bodies, key=lambda body: int(body.split()[1]))


def test_a_push_consumer_gets_the_subscribed_tags(names: str) -> None:
    send(names, "tagged", 20)
    taken = Taken()
    with consumer_of(names, "tagged", "tagged", taken, "odd || none"):
        taken.wait(10)
    assert sorted(taken.bodies) == sorted(f"body {number}" for number in range(1, 20, 2))


def test_a_pull_consumer_gets_the_subscribed_tags(names: str) -> None:
    send(names, "pulled", 20)
    found = pull(names, "pulled", "even")
    assert {(body, keys) for body, keys, _ in found} == {
        (f"body {number}", f"key of body {number}") for number in range(0, 20, 2)
    }


def test_offsets_count_up_in_each_queue(names: str) -> None:
    with producer_of(names) as producer:
        results = [producer.send_sync(message_of("counted", str(number))) for number in range(8)]
    assert sorted(result.offset for result in results) == [0, 0, 0, 0, 1, 1, 1, 1]
    assert len({result.msg_id for result in results}) == 8


def test_responses_are_passed_to_callbacks(names: str) -> None:
    offsets: list[int] = []
    failures: list[object] = []
    done = threading.Semaphore(0)

    def record(result: Any) -> None:
        offsets.append(result.offset)
        done.release()

    with producer_of(names) as producer:
        producer.send_sync(message_of("called", "first"))
        for number in range(20):
            producer.send_async(message_of("called", str(number)), record, failures.append)
        for _ in range(20):
            assert done.acquire(timeout=PATIENCE_S), failures
    assert (len(offsets), failures) == (20, [])
    assert sorted(body for body, _, _ in pull(names, "called")) == sorted(["first", *map(str, range(20))])


def test_one_way_messages_arrive(names: str) -> None:
    taken = Taken()
    with producer_of(names) as producer:
        producer.send_sync(message_of("one-way", "first"))
        for number in range(10):
            producer.send_oneway(message_of("one-way", str(number)))
        with consumer_of(names, "one-way", "one-way", taken):
            taken.wait(11)
    assert sorted(taken.bodies) == sorted(["first", *map(str, range(10))])


def test_a_batch_becomes_messages_of_one_queue(names: str) -> None:
    """The client sends `batch=1`, which Apache RocketMQ does not take for a batch: it stores all as one message."""
    with producer_of(names) as producer:
        producer.send_batch([message_of("batched", str(number)) for number in range(5)])
    found = pull(names, "batched")
    assert [body for body, _, _ in found] == [str(number) for number in range(5)]
    assert len({queue for _, _, queue in found}) == 1


def test_messages_of_a_number_are_in_one_queue_in_order(names: str) -> None:
    with producer_of(names) as producer:
        for step in range(5):
            for order in range(6):
                producer.send_orderly(message_of("ordered", f"{order} {step}"), order)
    steps: dict[str, list[str]] = {}
    queues: dict[str, set[int]] = {}
    for body, _, queue in pull(names, "ordered"):
        order, step = body.split()
        steps.setdefault(order, []).append(step)
        queues.setdefault(order, set()).add(queue)
    assert steps == {str(order): list("01234") for order in range(6)}
    assert all(len(of_order) == 1 for of_order in queues.values())


def test_every_member_of_a_broadcast_gets_everything(names: str) -> None:
    """A broadcast consumer begins at the end. Each is ready once it has received a message of every queue."""
    from rocketmq.ffi import MessageModel

    send(names, "broadcast", 10)
    members = Taken(), Taken()
    model = {"message_model": MessageModel.BROADCASTING}
    with (
        consumer_of(names, "broadcast", "broadcast", members[0], instance="one", **model),
        consumer_of(names, "broadcast", "broadcast", members[1], instance="other", **model),
        producer_of(names) as producer,
    ):
        deadline = time.monotonic() + PATIENCE_S
        while not all(taken.is_reached(lambda taken: len(taken.queues) == 4, 0.05) for taken in members):
            assert time.monotonic() < deadline, [taken.queues for taken in members]
            producer.send_sync(message_of("broadcast", "warming"))
        for number in range(20):
            producer.send_sync(message_of("broadcast", f"each {number}"))
        for taken in members:
            assert taken.is_reached(lambda taken: sum(body.startswith("each") for body in taken.bodies) >= 20)
    wanted = sorted(f"each {number}" for number in range(20))
    assert [sorted(body for body in taken.bodies if body.startswith("each")) for taken in members] == [wanted] * 2


def test_a_delayed_message_is_delivered_when_it_is_due(broker: Broker) -> None:
    names, taken = broker.addresses["rocketmq"], Taken()
    with producer_of(names) as producer:
        producer.send_sync(message_of("delayed", "later", level=5))
        producer.send_sync(message_of("delayed", "now"))
        with consumer_of(names, "delayed", "delayed", taken):
            assert taken.wait(1) == ["now"]
            broker.advance("1m")
            assert taken.wait(2) == ["now", "later"]


@pytest.mark.external  # ten seconds, until the client refreshes the route of its retry topic
def test_a_failed_message_is_redelivered_with_growing_delay(broker: Broker) -> None:
    """The package drops exceptions of a callback, so the test returns the status directly to the C++ client."""
    names, taken, times = broker.addresses["rocketmq"], Taken(), []

    def fail_twice(message: Any) -> int:
        times.append(message.reconsume_times)
        taken(message)
        return 1 if len(times) < 3 else 0

    with producer_of(names) as producer:
        producer.send_sync(message_of("failing", "again"))
    with consumer_of(names, "failing", "failing", taken, answer=fail_twice):
        for level, pause in ((3, "10s"), (4, "30s")):
            await_waiting(broker, level)
            broker.advance(pause)
        taken.wait(3)
    assert times == [0, 1, 2]


@pytest.mark.external  # ten seconds, see above
@pytest.mark.timeout(180)
def test_sixteen_retries_then_a_dead_letter(broker: Broker) -> None:
    names, taken, times = broker.addresses["rocketmq"], Taken(), []

    def fail(message: Any) -> int:
        times.append(message.reconsume_times)
        taken(message)
        return 1

    with producer_of(names) as producer:
        producer.send_sync(message_of("given-up", "bad"))
    with consumer_of(names, "given-up", "given-up", taken, answer=fail):
        for number, pause in enumerate(PAUSES):
            await_waiting(broker, 3 + number)
            broker.advance(pause)
        taken.wait(17)
        assert await_dead_letters(broker, "given-up") == [b"bad"]
    assert times == list(range(17))


@pytest.mark.external  # up to half a minute: the client refreshes routes only that often
@pytest.mark.timeout(180)
def test_clients_survive_an_outage_of_the_name_server(broker: Broker) -> None:
    names, taken = broker.addresses["rocketmq"], Taken()
    cable = Cable(names)
    try:
        with producer_of(cable.address) as producer:
            producer.send_sync(message_of("names", "first"))
            with consumer_of(cable.address, "names", "names", taken):
                taken.wait(1)
                cable.close()
                for number in range(10):
                    producer.send_sync(message_of("names", str(number)))
                taken.wait(11)
                cable = Cable(names, cable.port)
                send_at_last(producer, message_of("names-later", "later"))
                producer.send_sync(message_of("names", "last"))
                taken.wait(12)
        assert sorted(taken.bodies) == sorted(["first", *map(str, range(10)), "last"])
        assert [body for body, _, _ in pull(names, "names-later")] == ["later"]
    finally:
        cable.close()


@pytest.mark.external  # up to half a minute: the client sends heartbeats only that often
def test_clients_survive_an_outage_of_the_broker(broker: Broker) -> None:
    names, taken = broker.addresses["rocketmq"], Taken()
    with producer_of(names) as producer:
        producer.send_sync(message_of("restarted", "before"))
        with consumer_of(names, "restarted", "restarted", taken):
            taken.wait(1)
            broker.restart()
            send_at_last(producer, message_of("restarted", "after"))
            while "after" not in taken.wait(2):
                taken.wait(len(taken.bodies) + 1)
