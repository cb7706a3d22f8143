"""`python -m bench.client [--tiny] [--folder F]`: CPU time of `trimq.client` for each message of 100 bytes, beside
confluent-kafka, pika and RocketMQ's C++ client (PyPI `rocketmq`), all against one TriMQ in the same run."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

from bench.figures import Figure, at_most
from bench.processes import broker_in, run_module
from bench.runner import run, scratch


class Work(NamedTuple):
    """One way to send or to receive. `goal_us`: most CPU time of the client for a message."""

    name: str
    count: int
    goal_us: float | None = None


WORKS = {
    "one": Work("AsyncClient.send, one at a time", 3000, 110),
    "window": Work("AsyncClient.send, 64 under way", 30_000, 20),
    "nowait": Work("AsyncClient.send_nowait, 256 under way", 50_000, 15),
    "gathered": Work("AsyncClient.send_nowait, accumulator", 50_000, 5),
    "oneway": Work("AsyncClient.send_oneway", 50_000, 10),
    "blocking": Work("Client.send", 3000, 200),
    "blocking_nowait": Work("Client.send_nowait", 50_000, 10),
    "batch": Work("Client.send_all, batches of 32", 50_000, 10),
    "consumed": Work("Consumer.run, one coroutine call per message", 30_000, 12),
    "consumed_batch": Work("Consumer.run, batch=32", 30_000, 6),
    "cpp": Work("rocketmq (C++) send", 3000),
    "cpp_oneway": Work("rocketmq (C++) one-way", 20_000),
    "pika_confirmed": Work("pika, confirmed one by one", 3000),
    "pika": Work("pika, not confirmed", 20_000),
    "confluent": Work("confluent-kafka produce", 100_000),
}
IMPORT_MS, IDLE_MB = 60, 40
TINY = 64


def measure(key: str, folder: Path, is_tiny: bool) -> Iterator[Figure]:
    work = WORKS[key]
    count = min(work.count, TINY) if is_tiny else work.count
    with broker_in(folder / key) as broker:
        found = run_module("bench.client_work", key, json.dumps(broker.addresses), str(count))
    goal = None if work.goal_us is None else at_most(work.goal_us)
    yield Figure(work.name, found["cpu_us"], "us of CPU/message", goal=goal, note=f"{found['rate']:,.0f} messages/s")


def measure_footprint(folder: Path) -> Iterator[Figure]:
    found = run_module("bench.client_work", "import", "{}", "1")
    yield Figure("import of AsyncClient", found["ms"], "ms", goal=at_most(IMPORT_MS))
    with broker_in(folder / "idle") as broker:
        found = run_module("bench.client_work", "idle", json.dumps(broker.addresses), "1000")
    yield Figure("memory with 1,000 idle queues", found["mb"], "MB above the import", goal=at_most(IDLE_MB))


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.client", description=__doc__)
    parser.add_argument("--tiny", action="store_true", help="check that every figure runs; the values are meaningless")
    parser.add_argument("--folder", type=Path, help="folder for temporary files; default: TMPDIR or build/")
    chosen = parser.parse_args(words)
    with scratch(chosen.folder) as folder:
        measures = {key: partial(measure, key, folder, chosen.tiny) for key in WORKS}
        run({**measures, "footprint": partial(measure_footprint, folder)})
    return 0


if __name__ == "__main__":
    sys.exit(main())
