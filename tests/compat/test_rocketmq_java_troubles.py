"""RocketMQ's Java client 5.x with a broker that does not answer, refuses, does not sync or is down: retries of its
producers."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from compat import rocketmq_judges as judges
from compat.programs import Conversation, Program
from compat.rocketmq_java import rocketmq_client
from compat.rocketmq_wire import PATIENCE_S, Wire

from tools.broker import running
from trimq.storage.io.files import Memory
from trimq.testing import Broker

pytestmark = [pytest.mark.external, pytest.mark.timeout(300)]

VERSION = "5.5.0"
MIB = 1 << 20
EACH = 10


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Program:
    return rocketmq_client(VERSION, tmp_path_factory.mktemp("home"), "NewerClient")


def test_a_send_to_a_hanging_broker_times_out(program: Program, tmp_path: Path) -> None:
    with running(tmp_path) as addresses, program.talking(addresses["rocketmq"], "stalled") as talk:
        pid = json.loads((tmp_path / "ready.json").read_text())["pid"]
        assert judges.heard(talk) == {"done": "sent"}
        os.kill(pid, signal.SIGSTOP)
        try:
            talk.go_on()
            line = judges.heard(talk)
        finally:
            os.kill(pid, signal.SIGCONT)
        assert line["failure"] == "timeout"
        assert 2000 <= line["took"] < 12_000, "the time-out is two seconds, plus some on a busy machine"
        assert judges.heard(talk) == {"done": "waited"}
        talk.go_on()
        assert judges.heard(talk) == {"after": "SEND_OK"}


# --- two brokers, the second one failing ------------------------------------------------------------------------------


@contextmanager
def second_broker(first: Broker) -> Iterator[Broker]:
    """Second broker, registered with the name server of the first for the duration of the connection."""
    limits: dict[str, Any] = {
        "limits_memory_percent": 50,
        "storage_busy_after_ms": 600_000,
        "rocketmq_busy_after_ms": 600_000,
    }
    with (
        Broker(rocketmq_broker_name="broker-b", rocketmq_flush_timeout_ms=200, **limits) as second,
        Wire(first.addresses["rocketmq"]) as names,
    ):
        for broker in (first, second):
            with Wire(broker.addresses["rocketmq_broker"]) as wire:
                wire.create_topic("spread", 1)
        register(names, second)
        yield second


def register(names: Wire, broker: Broker) -> None:
    address = broker.addresses["rocketmq_broker"]
    place = {"brokerName": "broker-b", "brokerAddr": address, "clusterName": "DefaultCluster", "brokerId": 0}
    topic = {"readQueueNums": 1, "writeQueueNums": 1, "perm": 6, "topicSysFlag": 0}
    # The first registration of a broker has all its topics: one alone is taken for an update of a known broker.
    topics = {name: {"topicName": name, **topic} for name in ("spread", "broker-b")}
    wrapper = {"topicConfigTable": topics, "dataVersion": {"counter": 1, "timestamp": 1}}
    body = {"topicConfigSerializeWrapper": wrapper, "filterServerList": []}
    names.done(103, place, json.dumps(body).encode())


def refused_writes(broker: Broker) -> int:
    with urllib.request.urlopen(f"http://{broker.addresses['http']}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    found = [line for line in lines if "refused_writes" in line and "rocketmq" in line and not line.startswith("#")]
    return sum(int(float(line.rpartition(" ")[2])) for line in found)


def await_refused(broker: Broker, count: int) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while refused_writes(broker) < count:
        assert time.monotonic() < deadline, refused_writes(broker)
        time.sleep(0.02)


def stored(broker: Broker) -> int:
    with Wire(broker.addresses["rocketmq_broker"]) as wire:
        return int(wire.done(30, {"topic": "spread", "queueId": 0})["offset"])


def take_memory(broker: Broker, percent: int) -> None:
    disk: Any = broker._store
    disk._files.taken = Memory(percent * MIB, 100 * MIB)
    broker.advance("2s", liveness=True)  # the memory use is read again


@contextmanager
def unsynced(broker: Broker) -> Iterator[None]:
    """Blocks the sync thread of this broker."""
    is_over = threading.Event()
    broker_run: Any = broker._broker_run
    broker.on_loop(lambda _: broker_run.run._threads[0](lambda: is_over.wait(PATIENCE_S), lambda *_: None))
    try:
        yield
    finally:
        is_over.set()


def test_a_send_refused_by_one_broker_is_retried_on_the_other_unless_its_queue_was_chosen(program: Program) -> None:
    with (
        Broker() as first,
        second_broker(first) as second,
        program.talking(first.addresses["rocketmq"], "elsewhere") as talk,
    ):
        half = EACH // 2
        assert judges.heard(talk) == {"content": {"broker-b SEND_OK": half, "broker-trimq SEND_OK": half}}
        judge_refusals(talk, first, second)
        take_memory(second, 10)
        with unsynced(second):
            talk.go_on()
            stalled = judges.heard(talk)["stalled"]
            assert stalled == {"broker-b FLUSH_DISK_TIMEOUT": half, "broker-trimq SEND_OK": half}
            assert judges.heard(talk) == {"another": {"broker-trimq SEND_OK": EACH}}
        assert judges.heard(talk) == {"done": "end"}
        second.crash()
        talk.go_on()
        assert judges.heard(talk) == {"gone": {"broker-trimq SEND_OK": EACH}}


def judge_refusals(talk: Conversation, first: Broker, second: Broker) -> None:
    """Sync sends are retried on the other broker. Ordered and one-way sends are tried once."""
    assert judges.heard(talk) == {"done": "refuse"}
    take_memory(second, 51)
    before = stored(first)
    talk.go_on()
    assert judges.heard(talk) == {"refused": {"broker-trimq SEND_OK": EACH}, "ordered": "code 14"}
    assert judges.heard(talk) == {"done": "count"}
    refused = refused_writes(second)
    assert 1 + 1 <= refused <= EACH + 1
    assert stored(first) == before + EACH
    talk.go_on()
    assert judges.heard(talk) == {"done": "stall"}
    await_refused(second, refused + EACH)
    assert (refused_writes(second), stored(first)) == (refused + EACH, before + EACH)
