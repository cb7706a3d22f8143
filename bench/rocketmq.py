"""`python -m bench.rocketmq [--quick] [--only WORD] [--flush MODE] [--delayed N] [--folder F]`: TriMQ and Apache
RocketMQ, which Maven downloads, compared in one run. Prints one JSON line per figure, then tables."""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from bench import rocketmq_delays, rocketmq_footprint, rocketmq_grpc, rocketmq_latency, rocketmq_traffic
from bench.comparison_page import as_page
from bench.figures import Figure
from bench.rocketmq_brokers import FLUSHES, ROCKETMQ, TITLE, Broker, Brokers, start_ours, start_rocketmq
from bench.rocketmq_peer import VERSION
from bench.rocketmq_sizes import ROCKETMQ_FULL, ROCKETMQ_QUICK, RocketMQSizes
from bench.runner import Measure, Steps, run, scratch
from tools.maven import JavaMissing

MEASURES: dict[str, Callable[[RocketMQSizes, Brokers], Iterator[Figure]]] = {
    "send": rocketmq_traffic.measure_send,
    "pipelined": rocketmq_traffic.measure_pipelined,
    "pull": rocketmq_traffic.measure_pull,
    "floor": rocketmq_traffic.measure_floor,
    "latency": rocketmq_latency.measure,
    "grpc": rocketmq_grpc.measure,
}
# Measurements that start their brokers themselves, one after the other.
WITH_OWN_BROKERS: dict[str, Callable[[RocketMQSizes, Path, Steps], Iterator[Figure]]] = {
    "footprint": rocketmq_footprint.measure,
    "delayed": rocketmq_delays.measure,
}
NAMES = (*MEASURES, *WITH_OWN_BROKERS)
GOALS = "CPU: send ≤ 0.35, pull ≤ 1; rate ≥ 2"


def main(words: list[str] | None = None) -> int:
    """Returns 0 even if a goal is missed: the figures depend on the other load of the machine."""
    chosen = _parser().parse_args(words)
    sizes = ROCKETMQ_QUICK if chosen.quick else ROCKETMQ_FULL
    if chosen.delayed:
        sizes = replace(sizes, delayed=chosen.delayed)
    names = [name for name in NAMES if any(word in name for word in chosen.only.split(","))]
    if not names:
        print(f"no measurement matches {chosen.only!r}; there are: {', '.join(NAMES)}", file=sys.stderr)
        return 2
    flushes = [chosen.flush] if chosen.flush else list(FLUSHES)
    try:
        with scratch(chosen.folder) as folder:
            _compare(sizes, names, flushes, folder)
    except JavaMissing as missing:
        print(f"RocketMQ cannot be started: {missing}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.rocketmq", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="check that every figure runs; the values are meaningless")
    parser.add_argument(
        "--only",
        default="",
        metavar="WORD",
        help="only the measurements with this in their name; several words are separated by commas",
    )
    parser.add_argument("--flush", choices=FLUSHES, help="only this flush mode; default: both")
    parser.add_argument(
        "--delayed", type=int, metavar="N", help=f"messages that fall due together; default: {ROCKETMQ_FULL.delayed}"
    )
    parser.add_argument("--folder", type=Path, help="folder for the brokers' files; default: TMPDIR or build/")
    return parser


def _compare(sizes: RocketMQSizes, names: Sequence[str], flushes: Sequence[str], folder: Path) -> None:
    measures: dict[str, Measure] = {}
    steps = Steps()
    if traffic := [name for name in names if name in MEASURES]:
        for flush in flushes:
            measures[f"flush {flush}"] = partial(_measure_flush_mode, sizes, traffic, flush, folder, steps)
    for name, measure in WITH_OWN_BROKERS.items():
        if name in names:
            measures[name] = partial(measure, sizes, folder, steps)
    run(measures, ROCKETMQ, partial(as_page, peer=TITLE, goals=GOALS), steps)


def _measure_flush_mode(
    sizes: RocketMQSizes, names: Sequence[str], flush: str, folder: Path, steps: Steps
) -> Iterator[Figure]:
    """Starts and warms up both brokers in one flush mode: RocketMQ has one mode per process."""
    with start_rocketmq(folder / ROCKETMQ, flush) as (peer, started_s), start_ours(folder / "ours", flush) as (ours, _):
        steps.show(f"warming up, flush {flush}", 0, 1)
        warm_up(sizes, [peer, ours], names, sizes.warm_seconds)
        age_s = time.perf_counter() - started_s
        print(f"RocketMQ {VERSION}, {flush}, has run for {age_s:.0f} s, most of them under load", file=sys.stderr)
        for number, name in enumerate(names):
            steps.show(f"{name}, flush {flush}", number, len(names))
            yield from MEASURES[name](sizes, Brokers(flush, peer, ours))
        steps.show("", 1, 1)


def warm_up(sizes: RocketMQSizes, brokers: Sequence[Broker], names: Sequence[str], seconds: float) -> None:
    """Sends all kinds of requests, mostly to RocketMQ; TriMQ has no JIT compiler and gets each kind once."""
    until_s = time.perf_counter() + seconds
    turn = 0
    while turn == 0 or time.perf_counter() < until_s:
        for broker in brokers if turn == 0 else brokers[:1]:
            body_bytes = rocketmq_traffic.BODIES[turn % 2]
            rocketmq_traffic.send(sizes, broker, sizes.connections[turn % len(sizes.connections)], body_bytes, 1)
            rocketmq_traffic.send(sizes, broker, rocketmq_traffic.PIPELINED_CONNECTIONS, body_bytes, sizes.depth)
            rocketmq_traffic.pull_new(sizes, broker, body_bytes)
            if "grpc" in names:
                rocketmq_grpc.send(sizes, broker)
        turn += 1


if __name__ == "__main__":
    # SIGTERM ends the run like Ctrl-C, so that the started brokers are stopped too.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(main())
