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

from bench import rocketmq_calls, rocketmq_delays, rocketmq_footprint, rocketmq_latency, rocketmq_traffic
from bench.comparison_page import as_page
from bench.figures import Figure
from bench.rocketmq_peer import VERSION
from bench.rocketmq_sides import FLUSHES, ROCKETMQ, SHOWN, Side, Sides, start_ours, start_rocketmq
from bench.rocketmq_sizes import ROCKETMQ_FULL, ROCKETMQ_QUICK, RocketMQSizes
from bench.running import Measure, Steps, run, scratch
from tools.maven import JavaMissing

MEASURES: dict[str, Callable[[RocketMQSizes, Sides], Iterator[Figure]]] = {
    "send": rocketmq_traffic.measure_send,
    "pipelined": rocketmq_traffic.measure_pipelined,
    "pull": rocketmq_traffic.measure_pull,
    "floor": rocketmq_traffic.measure_floor,
    "latency": rocketmq_latency.measure,
    "grpc": rocketmq_calls.measure,
}
# Measurements that start their brokers themselves, one after the other.
ALONE: dict[str, Callable[[RocketMQSizes, Path, Steps], Iterator[Figure]]] = {
    "footprint": rocketmq_footprint.measure,
    "delayed": rocketmq_delays.measure,
}
NAMES = (*MEASURES, *ALONE)
GOALS = "CPU: send ≤ 0.35, pull ≤ 1; rate ≥ 2"


def main(words: list[str] | None = None) -> int:
    """Returns 0 even if a goal is missed: the figures depend on the other load of the machine."""
    chosen = _parser().parse_args(words)
    sizes = ROCKETMQ_QUICK if chosen.quick else ROCKETMQ_FULL
    if chosen.delayed:
        sizes = replace(sizes, delayed=chosen.delayed)
    names = [name for name in NAMES if any(word in name for word in chosen.only.split(","))]
    if not names:
        print(f"no figure is named like {chosen.only!r}; there are: {', '.join(NAMES)}", file=sys.stderr)
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
    parser.add_argument("--quick", action="store_true", help="see that every figure runs; its value means nothing")
    parser.add_argument(
        "--only",
        default="",
        metavar="WORD",
        help="only the measurements whose name has this in it, or one of several with commas between",
    )
    parser.add_argument("--flush", choices=FLUSHES, help="only with this way to acknowledge; default: both")
    parser.add_argument(
        "--delayed", type=int, metavar="N", help=f"messages that fall due together; default: {ROCKETMQ_FULL.delayed}"
    )
    parser.add_argument("--folder", type=Path, help="where the brokers' files may lie; default: TMPDIR or build/")
    return parser


def _compare(sizes: RocketMQSizes, names: Sequence[str], flushes: Sequence[str], folder: Path) -> None:
    measures: dict[str, Measure] = {}
    steps = Steps()
    if traffic := [name for name in names if name in MEASURES]:
        for flush in flushes:
            measures[f"flush {flush}"] = partial(_measure_beside, sizes, traffic, flush, folder, steps)
    for name, measure in ALONE.items():
        if name in names:
            measures[name] = partial(measure, sizes, folder, steps)
    run(measures, ROCKETMQ, partial(as_page, peer=SHOWN, goals=GOALS), steps)


def _measure_beside(
    sizes: RocketMQSizes, names: Sequence[str], flush: str, folder: Path, steps: Steps
) -> Iterator[Figure]:
    """Starts and warms up both brokers in one flush mode: RocketMQ has one mode per process."""
    with start_rocketmq(folder / ROCKETMQ, flush) as (peer, started_s), start_ours(folder / "ours", flush) as (ours, _):
        steps.tell(f"warming up, flush {flush}", 0, 1)
        warm_up(sizes, [peer, ours], names, sizes.warm_seconds)
        age_s = time.perf_counter() - started_s
        print(f"RocketMQ {VERSION}, {flush}, has run for {age_s:.0f} s, most of them under load", file=sys.stderr)
        for number, name in enumerate(names):
            steps.tell(f"{name}, flush {flush}", number, len(names))
            yield from MEASURES[name](sizes, Sides(flush, peer, ours))
        steps.tell("", 1, 1)


def warm_up(sizes: RocketMQSizes, sides: Sequence[Side], names: Sequence[str], seconds: float) -> None:
    """Sends all kinds of requests, mostly to RocketMQ; TriMQ has no JIT compiler and gets each kind once."""
    until_s = time.perf_counter() + seconds
    turn = 0
    while turn == 0 or time.perf_counter() < until_s:
        for side in sides if turn == 0 else sides[:1]:
            body_bytes = rocketmq_traffic.BODIES[turn % 2]
            rocketmq_traffic.send(sizes, side, sizes.connections[turn % len(sizes.connections)], body_bytes, 1)
            rocketmq_traffic.send(sizes, side, rocketmq_traffic.PIPELINED_CONNECTIONS, body_bytes, sizes.depth)
            rocketmq_traffic.pull_new(sizes, side, body_bytes)
            if "grpc" in names:
                rocketmq_calls.send(sizes, side)
        turn += 1


if __name__ == "__main__":
    # SIGTERM ends the run like Ctrl-C, so that the started brokers are stopped too.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(main())
