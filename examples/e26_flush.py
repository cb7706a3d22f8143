"""E26, RocketMQ: with `flush = sync` nothing that was acknowledged is lost in a power cut; with `async` the last is.

Sync is the default: an answer leaves when the message is on disk, and messages that come together share one sync. Async
answers at once and syncs later. RocketMQ's third way, a pool of memory beside the page cache, spares a JVM the faults
of its mapped files; there are none here, and the setting is refused. The brokers are in this process: one in a folder
for the times, one in memory for the cuts, where what was not synced is gone.
"""

from __future__ import annotations

import time

from tools.rocketmq_wire import Wire
from trimq.errors import StartupError
from trimq.testing import Broker

COUNT = 200


def measure(flush: str) -> list[float]:
    """How long each of the answers took, in milliseconds, the shortest first."""
    with Broker(on_disk=True, flush=flush) as broker, Wire(broker.addresses["rocketmq_broker"]) as wire:
        wire.create_topic("e26", 1)
        times = []
        for number in range(COUNT):
            started = time.perf_counter()
            wire.send("e26", b"%d" % number)
            times.append((time.perf_counter() - started) * 1000)
        return sorted(times)


def cut_power(flush: str) -> tuple[int, int]:
    """How many messages were acknowledged, and how many are there when the broker is back."""
    # So long may a write wait for its sync: longer than this takes.
    with Broker(flush=flush, flush_interval_ms=60_000) as broker:
        with Wire(broker.addresses["rocketmq_broker"]) as wire:
            wire.create_topic("e26", 1)
            wire.send("e26", b"first")
        broker.restart()  # in order: everything is synced
        with Wire(broker.addresses["rocketmq_broker"]) as wire:
            acknowledged = 1 + sum(1 for number in range(COUNT) if wire.send("e26", b"%d" % number))
        broker.crash()
        broker.restart()
        with Wire(broker.addresses["rocketmq_broker"]) as wire:
            return acknowledged, len(wire.bodies("e26"))


def main() -> None:
    for flush in ("sync", "async"):
        times = measure(flush)
        print(
            f"{flush:<5}: half of the answers in {times[COUNT // 2]:.2f} ms, 99 of 100 in {times[-COUNT // 100]:.2f} ms"
        )
    for flush in ("sync", "async"):
        acknowledged, kept = cut_power(flush)
        print(f"{flush:<5}: power cut after {acknowledged} acknowledged: {kept} are there, {acknowledged - kept} lost")
        assert kept == acknowledged if flush == "sync" else 1 <= kept < acknowledged, (flush, acknowledged, kept)
    try:
        Broker(flush="pooled")
    except StartupError as refused:
        print(f"pooled: {refused}")
    else:
        raise AssertionError("pooled was not refused")


if __name__ == "__main__":
    main()
