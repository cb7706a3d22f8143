"""RocketMQ's C++ client (PyPI `rocketmq`): it sends in every way that it has, pushes and pulls. It has no
transactions."""

from __future__ import annotations

import base64
import json
import os
import random
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from compat.rocketmq_wire import Wire

from tools.broker import running
from trimq.storage.files import Memory
from trimq.testing import Broker

PATIENCE_S = 40


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running(tmp_path_factory.mktemp("broker")) as addresses:
        yield addresses["rocketmq"]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the client puts its logs."""
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.fixture
def broker() -> Iterator[Broker]:
    """One whose time we move."""
    with Broker() as broker:
        yield broker


@contextmanager
def producer_of(names: str, group: str = "pg") -> Iterator[Any]:
    from rocketmq.client import Producer

    producer: Any = Producer(group)
    producer.set_namesrv_addr(names)
    producer.start()
    try:
        yield producer
    finally:
        producer.shutdown()


@contextmanager
def consumer_of(
    names: str, group: str, topic: str, take: Callable[[Any], None], expression: str = "*", **options: Any
) -> Iterator[Any]:
    from rocketmq.client import PushConsumer, RecvMessage

    instance, answer = options.pop("instance", ""), options.pop("answer", None)
    consumer: Any = PushConsumer(group, **options)
    consumer.set_namesrv_addr(names)
    if instance:
        consumer.set_instance_name(instance)
    consumer.subscribe(topic, take, expression)
    if answer is not None:
        consumer._register_callback(lambda _, handle: answer(RecvMessage(handle)))
    consumer.start()
    try:
        yield consumer
    finally:
        consumer.shutdown()


def message_of(topic: str, body: str, tags: str = "", level: int = 0) -> Any:
    from rocketmq.client import Message

    message: Any = Message(topic)
    message.set_keys(f"key of {body}")
    message.set_body(body)
    if tags:
        message.set_tags(tags)
    if level:
        message.set_delay_time_level(level)
    return message


def send(names: str, topic: str, count: int) -> None:
    with producer_of(names) as producer:
        for number in range(count):
            producer.send_sync(message_of(topic, f"body {number}", "even" if number % 2 == 0 else "odd"))


class Taken:
    """What a consumer has got, in its order."""

    def __init__(self) -> None:
        self._grown = threading.Condition()
        self.bodies: list[str] = []

    def __call__(self, message: Any) -> None:
        with self._grown:
            self.bodies.append(bytes(message.body).decode())
            self._grown.notify_all()

    def wait(self, count: int) -> list[str]:
        with self._grown:
            assert self._grown.wait_for(lambda: len(self.bodies) >= count, PATIENCE_S), self.bodies
            return list(self.bodies)


def pull(names: str, topic: str, expression: str = "*") -> list[Any]:
    """The body, keys and queue of each, queue after queue."""
    from rocketmq.client import PullConsumer

    consumer: Any = PullConsumer(f"pull-{topic}")
    consumer.set_namesrv_addr(names)
    consumer.start()
    try:
        found = consumer.pull(topic, expression)
        return [(bytes(each.body).decode(), bytes(each.keys).decode(), each.queue_id) for each in found]
    finally:
        consumer.shutdown()


def await_waiting(broker: Broker, level: int) -> None:
    """Until a message waits at this level of delay."""
    deadline = time.monotonic() + PATIENCE_S
    with Wire(broker.addresses["rocketmq_broker"]) as wire:
        while wire.done(30, {"topic": "SCHEDULE_TOPIC_XXXX", "queueId": level - 1})["offset"] == "0":
            assert time.monotonic() < deadline, f"nothing came to wait at level {level}"
            time.sleep(0.01)


@pytest.mark.parametrize("is_orderly", [False, True])
def test_a_push_consumer_gets_all_that_was_sent(names: str, is_orderly: bool) -> None:
    topic = f"pushed-{is_orderly}"
    send(names, topic, 40)
    taken = Taken()
    with consumer_of(names, f"cg-{is_orderly}", topic, taken, orderly=is_orderly):
        taken.wait(40)
    assert sorted(taken.bodies) == sorted(f"body {number}" for number in range(40))


def test_a_push_consumer_gets_the_tags_that_it_asks_for(names: str) -> None:
    send(names, "tagged", 20)
    taken = Taken()
    with consumer_of(names, "tagged", "tagged", taken, "odd || none"):
        taken.wait(10)
    assert sorted(taken.bodies) == sorted(f"body {number}" for number in range(1, 20, 2))


def test_a_pull_consumer_gets_the_tags_that_it_asks_for(names: str) -> None:
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


def test_answers_come_to_callbacks(names: str) -> None:
    offsets: list[int] = []
    failures: list[object] = []
    done = threading.Semaphore(0)

    def hear(result: Any) -> None:
        offsets.append(result.offset)
        done.release()

    with producer_of(names) as producer:
        producer.send_sync(message_of("called", "first"))
        for number in range(20):
            producer.send_async(message_of("called", str(number)), hear, failures.append)
        for _ in range(20):
            assert done.acquire(timeout=PATIENCE_S), failures
    assert (len(offsets), failures) == (20, [])
    assert sorted(body for body, _, _ in pull(names, "called")) == sorted(["first", *map(str, range(20))])


def test_what_is_sent_one_way_arrives(names: str) -> None:
    taken = Taken()
    with producer_of(names) as producer:
        producer.send_sync(message_of("one-way", "first"))
        for number in range(10):
            producer.send_oneway(message_of("one-way", str(number)))
        with consumer_of(names, "one-way", "one-way", taken):
            taken.wait(11)
    assert sorted(taken.bodies) == sorted(["first", *map(str, range(10))])


def test_a_batch_becomes_messages_of_one_queue(names: str) -> None:
    """The client says `batch=1`, which a genuine broker takes for no batch: it stores all as one message."""
    with producer_of(names) as producer:
        producer.send_batch([message_of("batched", str(number)) for number in range(5)])
    found = pull(names, "batched")
    assert [body for body, _, _ in found] == [str(number) for number in range(5)]
    assert len({queue for _, _, queue in found}) == 1


def test_messages_of_a_number_lie_in_one_queue_in_order(names: str) -> None:
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
    from rocketmq.ffi import MessageModel

    send(names, "broadcast", 10)
    one, other = Taken(), Taken()
    model = {"message_model": MessageModel.BROADCASTING}
    with (
        consumer_of(names, "broadcast", "broadcast", one, instance="one", **model),
        consumer_of(names, "broadcast", "broadcast", other, instance="other", **model),
        producer_of(names) as producer,
    ):
        # Who comes to a broadcast begins at its end, unless the topic is young.
        producer.send_sync(message_of("broadcast", "last"))
        for taken in (one, other):
            while "last" not in taken.wait(1):
                taken.wait(len(taken.bodies) + 1)


def test_a_delayed_message_comes_when_it_is_due(broker: Broker) -> None:
    names, taken = broker.addresses["rocketmq"], Taken()
    with producer_of(names) as producer:
        producer.send_sync(message_of("delayed", "later", level=5))
        producer.send_sync(message_of("delayed", "now"))
        with consumer_of(names, "delayed", "delayed", taken):
            assert taken.wait(1) == ["now"]
            broker.advance("1m")
            assert taken.wait(2) == ["now", "later"]


@pytest.mark.external  # ten seconds, until the client looks for the topic of its retries
def test_what_fails_comes_again_later_each_time(broker: Broker) -> None:
    """What a callback raises is lost in the package, so that the client is answered past it."""
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


@pytest.mark.external  # half a minute, for the client says only so often that it is there
def test_clients_live_on_while_the_broker_does_not(broker: Broker) -> None:
    names, taken = broker.addresses["rocketmq"], Taken()
    with producer_of(names) as producer:
        producer.send_sync(message_of("restarted", "before"))
        with consumer_of(names, "restarted", "restarted", taken):
            taken.wait(1)
            broker.restart()
            deadline = time.monotonic() + PATIENCE_S
            while True:
                try:
                    producer.send_sync(message_of("restarted", "after"))
                    break
                except Exception:  # whatever the package calls a connection that is gone
                    assert time.monotonic() < deadline
            while "after" not in taken.wait(2):
                taken.wait(len(taken.bodies) + 1)


# --- a producer that sends more than there is room for ----------------------------------------------------------------

MIB = 1024 * 1024
LOW_WATER_BYTES = 32 * MIB


def large(topic: str) -> Any:
    """A message that cannot be made much shorter, nearly as long as the client sends any."""
    message = message_of(topic, "large")
    message.set_body(base64.b64encode(random.randbytes(90 * 1024)).decode())
    return message


def flood(producer: Any, topic: str, most: int) -> int:
    """Send until the client says that the broker does not take it. How many it took."""
    from rocketmq.exceptions import ProducerSendSyncFailed

    for number in range(most):
        try:
            producer.send_sync(large(topic))
        except ProducerSendSyncFailed:
            return number
    raise AssertionError(f"{most} messages were taken")


def refused_writes(broker: Broker, reason: str) -> int:
    with urllib.request.urlopen(f"http://{broker.addresses['http']}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    found = [line for line in lines if "refused_writes" in line and reason in line and "rocketmq" in line]
    return sum(int(float(line.rpartition(" ")[2])) for line in found)


def test_a_flood_is_refused_before_the_disk_is_full_and_goes_on_when_there_is_room() -> None:
    settings: dict[str, Any] = {"rocketmq_delete_when": "", "rocketmq_retention_ms": 3_600_000}
    with Broker(storage_low_water_bytes=LOW_WATER_BYTES, **settings) as broker:
        disk: Any = broker._store
        files = disk._files
        with Wire(broker.addresses["rocketmq_broker"]) as wire:
            wire.create_topic("flooded", 1)
        files._total_bytes -= files.space().free_bytes - LOW_WATER_BYTES - 32 * MIB
        broker.advance("2s", liveness=True)  # the disk is asked anew
        with producer_of(broker.addresses["rocketmq"]) as producer:
            taken = flood(producer, "flooded", 800)
            assert taken > 50
            free_bytes = files.space().free_bytes
            for _ in range(20):
                assert flood(producer, "flooded", 1) == 0
            assert files.space().free_bytes >= free_bytes - MIB > 0
            assert refused_writes(broker, "DiskFull") >= 21
            broker.advance("2h")  # what was sent is kept no longer
            broker.advance("2s", liveness=True)
            assert producer.send_sync(message_of("flooded", "again")).offset == taken


def test_a_flood_is_refused_while_the_broker_takes_too_much_memory() -> None:
    with Broker(limits_memory_percent=50) as broker:
        disk: Any = broker._store
        files = disk._files
        with producer_of(broker.addresses["rocketmq"]) as producer:
            for _ in range(20):
                producer.send_sync(large("flooded"))
            files.taken = Memory(51 * MIB, 100 * MIB)
            broker.advance("2s", liveness=True)  # the system is asked anew
            free_bytes = files.space().free_bytes
            for _ in range(20):
                assert flood(producer, "flooded", 1) == 0
            assert files.space().free_bytes >= free_bytes - MIB
            assert refused_writes(broker, "MemoryFull") >= 20
            files.taken = Memory(40 * MIB, 100 * MIB)
            broker.advance("2s", liveness=True)
            producer.send_sync(message_of("flooded", "again"))
        assert "again" in [body for body, _, _ in pull(broker.addresses["rocketmq"], "flooded")]


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the system does not tell what a process takes")
def test_what_nobody_reads_does_not_take_the_brokers_memory(tmp_path: Path) -> None:
    def private_bytes(pid: int) -> int:
        _, resident, shared, *_ = Path(f"/proc/{pid}/statm").read_text().split()
        return (int(resident) - int(shared)) * os.sysconf("SC_PAGE_SIZE")

    with running(tmp_path) as addresses, producer_of(addresses["rocketmq"]) as producer:
        pid = json.loads((tmp_path / "ready.json").read_text())["pid"]
        producer.send_sync(message_of("flooded", "first"))
        before = most = private_bytes(pid)
        for number in range(400):
            (producer.send_oneway if number % 20 else producer.send_sync)(large("flooded"))
            most = max(most, private_bytes(pid))
        producer.send_sync(message_of("flooded", "last"))
    assert most - before < 16 * MIB, "less than half of what was sent"
