"""confluent-kafka: producers that send more than the disk or memory holds are throttled, then refused; they resume when
there is room, and lose nothing."""

from __future__ import annotations

import json
import os
import random
import threading
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from tools.broker import running
from trimq.storage.io.files import Memory
from trimq.testing import Broker

MIB = 1024 * 1024
LOW_WATER_BYTES = 32 * MIB
THROTTLED_BELOW_BYTES = LOW_WATER_BYTES * 100 // 80  # limits.throttle_percent
BODY_BYTES = 900_000
PATIENCE_S = 60


class Flood:
    """Producer whose messages are so large that each is a request of its own."""

    def __init__(self, address: str, topic: str) -> None:
        self._topic = topic
        self.throttled_ms: list[int] = []
        self.failures: list[str] = []
        self.delivered = 0
        settings: dict[str, Any] = {
            "bootstrap.servers": address,
            "enable.idempotence": True,
            "linger.ms": 0,
            "compression.type": "none",
            "queue.buffering.max.kbytes": 1 << 20,
            "max.in.flight.requests.per.connection": 1,
            "throttle_cb": lambda event: self.throttled_ms.append(round(event.throttle_time * 1000)),
        }
        self._producer = Producer(settings)

    def send(self, count: int) -> None:
        for _ in range(count):
            self._producer.produce(self._topic, random.randbytes(BODY_BYTES), partition=0, on_delivery=self._answered)

    def _answered(self, error: Any, message: object) -> None:
        if error is None:
            self.delivered += 1
        else:
            self.failures.append(str(error))

    def poll_until(self, is_reached: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not is_reached():
            assert time.monotonic() < deadline, f"{self.delivered} delivered, {self.failures}"
            self._producer.poll(0.05)

    def poll_for(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self._producer.poll(0.05)

    def flush(self) -> None:
        assert self._producer.flush(PATIENCE_S) == 0
        assert self.failures == []


def metric(broker: Broker, name: str, labels: str = "") -> float:
    with urllib.request.urlopen(f"{broker.http}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(f"trimq_{name}") and labels in line)


def refused(broker: Broker, reason: str) -> float:
    return metric(broker, "refused_writes_total", reason)


def test_a_flood_is_throttled_then_refused_before_the_disk_is_full_and_resumes_when_there_is_room() -> None:
    count = 30
    with Broker(storage_low_water_bytes=LOW_WATER_BYTES) as broker:
        disk: Any = broker._store
        files = disk._files
        broker.create_topic("flooded")
        files._total_bytes -= files.space().free_bytes - THROTTLED_BELOW_BYTES - 6 * MIB
        broker.advance("2s", liveness=True)  # the free space is read again
        flood = Flood(broker.kafka, "flooded")
        flood.send(5)
        flood.flush()
        assert flood.throttled_ms == []  # there is still more than the mark
        flood.send(count - 5)
        flood.poll_until(lambda: refused(broker, "DiskFull") > 0)
        assert LOW_WATER_BYTES - 2 * MIB < files.space().free_bytes < LOW_WATER_BYTES + MIB
        assert len(flood.throttled_ms) >= 3
        assert flood.throttled_ms[0] < flood.throttled_ms[-1] <= 1000
        delivered, free_bytes = flood.delivered, files.space().free_bytes
        assert delivered < count
        flood.poll_for(1)
        assert (flood.delivered, files.space().free_bytes) == (delivered, free_bytes)
        files._total_bytes += 200 * MIB
        flood.flush()
        assert flood.delivered == count
        assert len(broker.records("flooded")) == count  # each once
        assert metric(broker, "throttled_writes_total") >= sum(ms > 0 for ms in flood.throttled_ms)


def test_a_flood_is_throttled_then_refused_while_memory_is_short_and_resumes_when_it_is_free() -> None:
    with Broker(limits_memory_percent=50) as broker:
        disk: Any = broker._store
        files = disk._files
        broker.create_topic("flooded")

        def use(percent: int) -> None:
            files.taken = Memory(percent * MIB, 100 * MIB)
            broker.advance("2s", liveness=True)  # the memory use is read again

        flood = Flood(broker.kafka, "flooded")
        use(40)
        flood.send(5)
        flood.flush()
        assert flood.throttled_ms == []
        use(45)
        flood.send(4)
        flood.flush()
        assert set(flood.throttled_ms) == {500}
        use(51)
        flood.send(3)
        flood.poll_until(lambda: refused(broker, "MemoryFull") > 0)
        assert flood.delivered == 9
        use(40)
        flood.flush()
        assert flood.delivered == len(broker.records("flooded")) == 12


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the system has no /proc/self/statm")
def test_a_flood_does_not_stay_in_the_brokers_memory(tmp_path: Path) -> None:
    def private_bytes(pid: int) -> int:
        _, resident, shared, *_ = Path(f"/proc/{pid}/statm").read_text().split()
        return (int(resident) - int(shared)) * os.sysconf("SC_PAGE_SIZE")

    count = 150
    with running(tmp_path) as addresses:
        pid = json.loads((tmp_path / "ready.json").read_text())["pid"]
        floods = [Flood(addresses["kafka"], f"flooded-{number}") for number in range(2)]
        for flood in floods:
            flood.send(1)
            flood.flush()
        before = most = private_bytes(pid)
        for flood in floods:
            flood.send(count)
        threads = [threading.Thread(target=flood.flush) for flood in floods]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            most = max(most, private_bytes(pid))
            threads[0].join(0.02)
        assert [flood.delivered for flood in floods] == [count + 1, count + 1]
    assert most - before < 32 * MIB, "memory grew by more than an eighth of the sent bytes"
