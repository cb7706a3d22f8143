"""E26, RocketMQ: with `flush = sync` a power cut loses no acknowledged message; with `async` it loses the last ones.

Sync is the default: the response is sent when the message is on disk, and concurrent messages share one sync. Async
responds at once and syncs later. RocketMQ's third mode, a pool of memory beside the page cache, avoids page faults of
mapped files in a JVM; TriMQ has none, and refuses the setting. The brokers run in this process: one on disk for the
response times, one in memory for the power cuts, which remove all unsynced data."""

from __future__ import annotations

import time

from tools.rocketmq_wire import Wire
from trimq.errors import StartupError
from trimq.testing import Broker

COUNT = 200


def measure(flush: str) -> list[float]:
    """Returns the response times in milliseconds, sorted."""
    with Broker(on_disk=True, flush=flush) as broker, Wire(broker.addresses["rocketmq_broker"]) as wire:
        wire.create_topic("e26", 1)
        times = []
        for number in range(COUNT):
            started = time.perf_counter()
            wire.send("e26", b"%d" % number)
            times.append((time.perf_counter() - started) * 1000)
        return sorted(times)


def cut_power(flush: str) -> tuple[int, int]:
    """Returns the number of acknowledged messages, and of those that exist after the restart."""
    # Maximum delay of a sync: longer than this example runs.
    with Broker(flush=flush, flush_interval_ms=60_000) as broker:
        with Wire(broker.addresses["rocketmq_broker"]) as wire:
            wire.create_topic("e26", 1)
            wire.send("e26", b"first")
        broker.restart()  # a clean stop syncs everything
        with Wire(broker.addresses["rocketmq_broker"]) as wire:
            acknowledged = 1 + sum(1 for number in range(COUNT) if wire.send("e26", b"%d" % number))
        broker.crash()
        broker.restart()
        with Wire(broker.addresses["rocketmq_broker"]) as wire:
            return acknowledged, len(wire.bodies("e26"))


def main() -> None:
    for flush in ("sync", "async"):
        times = measure(flush)
        print(f"{flush:<5}: median response {times[COUNT // 2]:.2f} ms, p99 {times[-COUNT // 100]:.2f} ms")
    for flush in ("sync", "async"):
        acknowledged, kept = cut_power(flush)
        print(f"{flush:<5}: power cut after {acknowledged} acknowledged: {kept} kept, {acknowledged - kept} lost")
        assert kept == acknowledged if flush == "sync" else 1 <= kept < acknowledged, (flush, acknowledged, kept)
    try:
        Broker(flush="pooled")
    except StartupError as refused:
        print(f"pooled: {refused}")
    else:
        raise AssertionError("pooled was not refused")


if __name__ == "__main__":
    main()
