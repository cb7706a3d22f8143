"""`python -m bench.amqp [--quick] [--only WORD] [--flush MODE] [--backlog N] [--folder F]`: TriMQ and RabbitMQ, which
is installed from Debian's packages, compared in one run. Prints one JSON line per figure, then tables."""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

from bench import amqp_footprint, amqp_latency, amqp_traffic
from bench.amqp_brokers import QUEUES, RABBITMQ, Broker, Brokers
from bench.amqp_footprint import start_ours, start_rabbitmq
from bench.amqp_peer import DebianMissing, version
from bench.amqp_sizes import AMQP_FULL, AMQP_QUICK, AmqpSizes
from bench.comparison_page import as_page
from bench.figures import Figure
from bench.runner import Measure, Steps, run, scratch

MEASURES: dict[str, Callable[[AmqpSizes, Brokers], Iterator[Figure]]] = {
    "publish": amqp_traffic.measure_publish,
    "consume": amqp_traffic.measure_consume,
    "both at once": amqp_traffic.measure_both,
    "one at a time": amqp_traffic.measure_alone,
    "latency": amqp_latency.measure,
}
CHURN = "churn"
FOOTPRINT = "footprint"
NAMES = (*MEASURES, CHURN, FOOTPRINT)


def main(words: list[str] | None = None) -> int:
    """Returns 0 even if a goal is missed: the figures depend on the other load of the machine."""
    chosen = _parser().parse_args(words)
    sizes = AMQP_QUICK if chosen.quick else AMQP_FULL
    if chosen.backlog:
        sizes = replace(sizes, backlog=chosen.backlog)
    names = [name for name in NAMES if chosen.only in name]
    if not names:
        print(f"no measurement matches {chosen.only!r}; there are: {', '.join(NAMES)}", file=sys.stderr)
        return 2
    flushes = [chosen.flush] if chosen.flush else list(QUEUES)
    try:
        print(f"RabbitMQ {version()}", file=sys.stderr)
        with scratch(chosen.folder) as folder:
            _compare(sizes, names, flushes, folder)
    except DebianMissing as missing:
        print(f"RabbitMQ cannot be started: {missing}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.amqp", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="check that every figure runs; the values are meaningless")
    parser.add_argument("--only", default="", metavar="WORD", help="only the measurements with this in their name")
    parser.add_argument("--flush", choices=list(QUEUES), help="only this flush mode; default: both")
    parser.add_argument(
        "--backlog", type=int, metavar="N", help=f"messages in the backlog; default: {AMQP_FULL.backlog}"
    )
    parser.add_argument("--folder", type=Path, help="folder for the brokers' files; default: TMPDIR or build/")
    return parser


def _compare(sizes: AmqpSizes, names: Sequence[str], flushes: Sequence[str], folder: Path) -> None:
    measures: dict[str, Measure] = {}
    steps = Steps()
    with ExitStack() as stack:
        if any(name != FOOTPRINT for name in names):
            rabbitmq, _ = stack.enter_context(start_rabbitmq(folder / RABBITMQ))
            every = {flush: _start_pair(stack, rabbitmq, flush, folder) for flush in flushes}
            for brokers in every.values():
                warm_up(sizes, brokers, sizes.warm_seconds / len(every))
            for flush, brokers in every.items():
                for name in names:
                    if name in MEASURES:
                        measures[f"{name}, {flush}"] = partial(MEASURES[name], sizes, brokers)
            if CHURN in names:
                measures[CHURN] = partial(amqp_footprint.measure_churn, sizes, every[flushes[0]])
        if FOOTPRINT in names:
            measures[FOOTPRINT] = partial(amqp_footprint.measure, sizes, folder, steps)
        run(measures, RABBITMQ, partial(as_page, peer="RabbitMQ", goals="CPU ≤ 0.5, rate ≥ 2"), steps)


def _start_pair(stack: ExitStack, rabbitmq: Broker, flush: str, folder: Path) -> Brokers:
    ours, _ = stack.enter_context(start_ours(folder / f"ours-{flush}", flush))
    return Brokers(flush, rabbitmq, ours)


def warm_up(sizes: AmqpSizes, brokers: Brokers, seconds: float) -> None:
    until_s = time.perf_counter() + seconds
    turn = 0
    while turn == 0 or time.perf_counter() < until_s:
        for broker in brokers.both():
            amqp_traffic.publish_and_consume(
                sizes, brokers.kind, broker, sizes.connections, amqp_traffic.BODIES[turn % 2]
            )
        turn += 1


if __name__ == "__main__":
    # SIGTERM ends the run like Ctrl-C, so that the started brokers are stopped too.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(main())
