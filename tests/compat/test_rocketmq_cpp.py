"""RocketMQ's C++ client (PyPI `rocketmq`) against a broker process of its own: it sends, pushes and pulls."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tools.broker import running

FLAGS = ["--rocketmq-listen", "127.0.0.1:0", "--rocketmq-broker-listen", "127.0.0.1:0"]
PATIENCE_S = 40


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running(tmp_path_factory.mktemp("broker"), FLAGS) as addresses:
        yield addresses["rocketmq"]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the client puts its logs."""
    monkeypatch.setenv("HOME", str(tmp_path))


def send(names: str, topic: str, count: int) -> list[int]:
    from rocketmq.client import Message, Producer

    producer: Any = Producer("pg")
    producer.set_namesrv_addr(names)
    producer.start()
    try:
        offsets = []
        for number in range(count):
            message: Any = Message(topic)
            message.set_keys(f"k{number}")
            message.set_tags("even" if number % 2 == 0 else "odd")
            message.set_body(f"body {number}")
            offsets.append(producer.send_sync(message).offset)
        return offsets
    finally:
        producer.shutdown()


@pytest.mark.parametrize("is_orderly", [False, True])
def test_a_push_consumer_gets_all_that_was_sent(names: str, is_orderly: bool) -> None:
    from rocketmq.client import PushConsumer

    topic = f"pushed-{is_orderly}"
    send(names, topic, 40)
    found: set[bytes] = set()
    everything = threading.Event()

    def take(message: Any) -> int:
        found.add(bytes(message.body))
        if len(found) == 40:
            everything.set()
        return 0

    consumer: Any = PushConsumer(f"cg-{is_orderly}", orderly=is_orderly)
    consumer.set_namesrv_addr(names)
    consumer.subscribe(topic, take)
    consumer.start()
    try:
        assert everything.wait(PATIENCE_S), sorted(found)
    finally:
        consumer.shutdown()
    assert found == {b"body %d" % number for number in range(40)}


def test_a_pull_consumer_gets_the_tags_that_it_asks_for(names: str) -> None:
    from rocketmq.client import PullConsumer

    send(names, "pulled", 20)
    consumer: Any = PullConsumer("pg")
    consumer.set_namesrv_addr(names)
    consumer.start()
    try:
        found = {bytes(message.body) for message in consumer.pull("pulled", "even")}
    finally:
        consumer.shutdown()
    assert found == {b"body %d" % number for number in range(0, 20, 2)}
