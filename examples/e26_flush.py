"""E26, RocketMQ: sync, async and pooled flush: response times, and what a killed process or a power cut loses.

Sync, the default, responds when the message is on disk; concurrent messages share one sync. Async responds from the
page cache and syncs later. Pooled, RocketMQ's transientStorePoolEnable, responds from memory: messages are committed to
the page cache when 16 KiB are collected or an interval has passed, and synced later. The brokers run in this process.
On disk, their end without a stop is that of a killed process: the page cache stays. In memory it is a power cut: all
unsynced data is gone."""

from __future__ import annotations

import time

from tools.rocketmq_wire import Wire
from trimq.testing import Broker

COUNT = 200
# Longer than this example runs, so that neither commit nor sync happens by time.
INTERVALS = {"flush_interval_ms": 60_000, "rocketmq_commit_interval_ms": 60_000}


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


def crash(flush: str, on_disk: bool) -> tuple[int, int]:
    """Returns the number of acknowledged messages, and of those that exist after the restart."""
    with Broker(on_disk=on_disk, flush=flush, **INTERVALS) as broker:
        with Wire(broker.addresses["rocketmq_broker"]) as wire:
            wire.create_topic("e26", 1)
            wire.send("e26", b"first")
        broker.restart()  # a clean stop commits and syncs everything
        with Wire(broker.addresses["rocketmq_broker"]) as wire:
            acknowledged = 1 + sum(1 for number in range(COUNT) if wire.send("e26", b"%d" % number))
        broker.crash()
        broker.restart()
        with Wire(broker.addresses["rocketmq_broker"]) as wire:
            bodies = wire.bodies("e26")
    assert bodies == [b"first", *(b"%d" % number for number in range(len(bodies) - 1))], "a gap"
    return acknowledged, len(bodies)


def main() -> None:
    for flush in ("sync", "async", "pooled"):
        times = measure(flush)
        print(f"{flush:<6}: median response {times[COUNT // 2]:.2f} ms, p99 {times[-COUNT // 100]:.2f} ms")
    for on_disk, event, safe in ((True, "process killed", ("sync", "async")), (False, "power cut", ("sync",))):
        for flush in ("sync", "async", "pooled"):
            acknowledged, kept = crash(flush, on_disk)
            lost = acknowledged - kept
            print(f"{flush:<6}: {event} after {acknowledged} acknowledged: {kept} kept, {lost} lost")
            assert lost == 0 if flush in safe else 0 < lost < acknowledged, (flush, event, acknowledged, kept)


if __name__ == "__main__":
    main()
