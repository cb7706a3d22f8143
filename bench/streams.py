"""Opening many streams in a new process: after kill -9, and after a clean stop."""

from __future__ import annotations

import asyncio
import gc
import json
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.figures import Figure, at_most
from bench.processes import PROJECT, ChildFailed, resident_mb, run_module
from bench.sizes import Sizes
from bench.storage_setup import batch_of, event_loop, raise_failure
from trimq.clock import LoopTime, system_clock
from trimq.config import Settings
from trimq.core.assembly.core import Core, open_core
from trimq.metrics import Metrics
from trimq.model import SYSTEM, Layout
from trimq.offload import ThreadOffload
from trimq.storage.group_commit.flusher import SyncFlusher
from trimq.storage.group_commit.passes import Passes
from trimq.storage.io.files import DiskFiles

SMALL = 200


def measure(sizes: Sizes, folder: Path) -> Iterator[Figure]:
    data = str(folder / "streams")
    streams = sizes.topics * sizes.streams_per_topic
    _fill_and_kill(data, sizes)
    try:
        for state in ("after kill -9", "after a clean stop"):
            found = run_module("bench.streams", "open", data)
            if found["streams"] != streams:
                raise ChildFailed(f"{found['streams']} of {streams} streams were found")
            note = f"wall time in a new process, files in the page cache; CPU {found['cpu_s']:.3g} s"
            yield Figure(f"open {streams:,} streams {state}", found["wall_s"], "s", goal=at_most(3), note=note)
            note = f"VmHWM of the process, the peak so far; {found['before_mb']:.0f} MB before it opened anything"
            yield Figure(
                f"memory of {streams:,} streams {state}", found["highest_mb"], "MB", goal=at_most(250), note=note
            )
    finally:
        shutil.rmtree(data)


def _fill_and_kill(data: str, sizes: Sizes) -> None:
    words = [data, str(sizes.topics), str(sizes.streams_per_topic), str(sizes.batches_per_stream)]
    command = [sys.executable, "-m", "bench.streams", "fill", *words]
    with subprocess.Popen(command, cwd=PROJECT, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            if process.stdout.readline() != b"filled\n":
                raise ChildFailed("the streams could not be created")
        finally:
            process.kill()


class _Opened:
    """The core on a data folder, with the flusher and the threads of a broker."""

    def __init__(self, data: str, offloads: list[ThreadOffload]) -> None:
        loop = asyncio.get_running_loop()
        settings = Settings(data_dir=data)
        files = DiskFiles(data, settings.storage.open_files)
        self.passes = Passes(loop.call_soon, raise_failure)
        threshold = settings.storage.syncfs_threshold
        turns, mark_durable = self.passes.turns, self.passes.mark_durable
        self.passes.start(SyncFlusher(files, offloads[0], threshold, mark_durable, raise_failure, turns, LoopTime()))
        self.core: Core = open_core(
            settings, files, self.passes, system_clock(), offloads[1], random.Random(7), Metrics()
        )

    async def until_idle(self) -> None:
        while not self.passes.is_idle:
            await asyncio.sleep(0.0005)


async def _fill(data: str, topics: int, streams: int, batches: int) -> None:
    """Creates the topics and appends to each stream, durable but without a checkpoint; then waits to be killed."""
    loop = asyncio.get_running_loop()
    opened = _Opened(data, [ThreadOffload("bench-sync", loop), ThreadOffload("bench-work", loop)])
    await opened.until_idle()
    opened.core.start()
    broker = opened.core.broker
    for number in range(topics):
        topic, _ = broker.topics.create(SYSTEM, f"topic-{number:03d}", Layout.PARTITION_LOG, streams, {})
        for stream in topic.streams:
            for _ in range(batches):
                batch, header = batch_of(SMALL)
                broker.partitions.append(SYSTEM, topic, stream, batch, header)
        await opened.until_idle()
    print("filled", flush=True)
    await asyncio.Event().wait()


async def _open(data: str) -> dict[str, Any]:
    loop = asyncio.get_running_loop()
    offloads = [ThreadOffload("bench-sync", loop), ThreadOffload("bench-work", loop)]
    before_mb = resident_mb()
    gc.disable()  # as `trimq serve` does until it has started
    began_s, cpu_s = time.perf_counter(), time.process_time()
    opened = _Opened(data, offloads)
    await opened.until_idle()
    wall_s, cpu_s = time.perf_counter() - began_s, time.process_time() - cpu_s
    found = {
        "streams": sum(len(topic.streams) for topic in opened.core.topics),
        "wall_s": wall_s,
        "cpu_s": cpu_s,
        "before_mb": before_mb,
        "highest_mb": resident_mb(field="VmHWM"),
    }
    opened.core.close()
    await opened.until_idle()
    for offload in offloads:
        offload.stop()
    return found


def _main(action: str, data: str, *sizes: str) -> None:
    with asyncio.Runner(loop_factory=event_loop) as runner:
        if action == "fill":
            runner.run(_fill(data, *map(int, sizes)))
        else:
            json.dump(runner.run(_open(data)), sys.stdout)


if __name__ == "__main__":
    _main(*sys.argv[1:])
