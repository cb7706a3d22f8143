"""RocketMQ's C++ client (PyPI `rocketmq`): producers that send more than the disk or memory holds."""

from __future__ import annotations

import base64
import json
import os
import random
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from compat.rocketmq_cpp import message_of, producer_of, pull
from compat.rocketmq_wire import Wire

from tools.broker import running
from trimq.storage.io.files import Memory
from trimq.testing import Broker

MIB = 1024 * 1024
LOW_WATER_BYTES = 32 * MIB


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Home folder, in which the client writes its logs."""
    monkeypatch.setenv("HOME", str(tmp_path))


def large(topic: str) -> Any:
    """Incompressible message, close to the client's maximum size."""
    message = message_of(topic, "large")
    message.set_body(base64.b64encode(random.randbytes(90 * 1024)).decode())
    return message


def flood(producer: Any, topic: str, most: int) -> int:
    """Sends until the broker refuses. Returns the number of accepted messages."""
    from rocketmq.exceptions import ProducerSendSyncFailed

    for number in range(most):
        try:
            producer.send_sync(large(topic))
        except ProducerSendSyncFailed:
            return number
    raise AssertionError(f"{most} messages were accepted")


def refused_writes(broker: Broker, reason: str) -> int:
    with urllib.request.urlopen(f"http://{broker.addresses['http']}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    found = [line for line in lines if "refused_writes" in line and reason in line and "rocketmq" in line]
    return sum(int(float(line.rpartition(" ")[2])) for line in found)


def test_a_flood_is_refused_before_the_disk_is_full_and_accepted_when_there_is_room() -> None:
    settings: dict[str, Any] = {"rocketmq_delete_when": "", "rocketmq_retention_ms": 3_600_000}
    with Broker(storage_low_water_bytes=LOW_WATER_BYTES, **settings) as broker:
        disk: Any = broker._store
        files = disk._files
        with Wire(broker.addresses["rocketmq_broker"]) as wire:
            wire.create_topic("flooded", 1)
        files._total_bytes -= files.space().free_bytes - LOW_WATER_BYTES - 32 * MIB
        broker.advance("2s", liveness=True)  # the free space is read again
        with producer_of(broker.addresses["rocketmq"]) as producer:
            taken = flood(producer, "flooded", 800)
            assert taken > 50
            free_bytes = files.space().free_bytes
            for _ in range(20):
                assert flood(producer, "flooded", 1) == 0
            assert files.space().free_bytes >= free_bytes - MIB > 0
            assert refused_writes(broker, "DiskFull") >= 21
            broker.advance("2h")  # the messages pass their retention
            broker.advance("2s", liveness=True)
            assert producer.send_sync(message_of("flooded", "again")).offset == taken


def test_a_flood_is_refused_while_the_broker_uses_too_much_memory() -> None:
    with Broker(limits_memory_percent=50) as broker:
        disk: Any = broker._store
        files = disk._files
        with producer_of(broker.addresses["rocketmq"]) as producer:
            for _ in range(20):
                producer.send_sync(large("flooded"))
            files.taken = Memory(51 * MIB, 100 * MIB)
            broker.advance("2s", liveness=True)  # the memory use is read again
            free_bytes = files.space().free_bytes
            for _ in range(20):
                assert flood(producer, "flooded", 1) == 0
            assert files.space().free_bytes >= free_bytes - MIB
            assert refused_writes(broker, "MemoryFull") >= 20
            files.taken = Memory(40 * MIB, 100 * MIB)
            broker.advance("2s", liveness=True)
            producer.send_sync(message_of("flooded", "again"))
        assert "again" in [body for body, _, _ in pull(broker.addresses["rocketmq"], "flooded")]


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the system has no /proc/self/statm")
def test_unread_messages_do_not_stay_in_the_brokers_memory(tmp_path: Path) -> None:
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
    assert most - before < 16 * MIB, "memory grew by more than half of the sent bytes"
