"""`python -m bench.kafka [--quick] [--only WORD] [--flush MODE] [--folder F]`: TriMQ and Apache Kafka, which Maven
downloads, compared in one run. Prints one JSON line per figure on standard output, then a table with the ratios."""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from bench import kafka_footprint, kafka_latency, kafka_produce, kafka_reads
from bench.figures import Figure
from bench.kafka_brokers import FLUSHES, KAFKA, Broker, Brokers
from bench.kafka_peer import VERSION, kafka_in
from bench.kafka_sizes import KAFKA_FULL, KAFKA_QUICK, KafkaSizes
from bench.processes import broker_in
from bench.runner import Measure, run, scratch
from tools.maven import JavaMissing

MEASURES: dict[str, Callable[[KafkaSizes, Brokers], Iterator[Figure]]] = {
    "raw produce": kafka_produce.measure_raw,
    "fetch": kafka_reads.measure_fetch,
    "latency": kafka_latency.measure,
    "librdkafka consumer": kafka_reads.measure_consumer,
    "librdkafka producer": kafka_produce.measure_clients,
}
FOOTPRINT = "footprint"
NAMES = (*MEASURES, FOOTPRINT)

# Apache Kafka syncs before it acknowledges only with flush.messages of a topic (or log.flush.interval.messages).
KAFKA_TOPICS: dict[str, dict[str, str]] = {"async": {}, "sync": {"flush.messages": "1"}}


def main(words: list[str] | None = None) -> int:
    """Returns 0 even if a goal is missed: the figures depend on the other load of the machine."""
    chosen = _parser().parse_args(words)
    sizes = KAFKA_QUICK if chosen.quick else KAFKA_FULL
    names = [name for name in NAMES if chosen.only in name]
    if not names:
        print(f"no measurement matches {chosen.only!r}; there are: {', '.join(NAMES)}", file=sys.stderr)
        return 2
    flushes = [chosen.flush] if chosen.flush else list(FLUSHES)
    try:
        with scratch(chosen.folder) as folder:
            _compare(sizes, names, flushes, folder)
    except JavaMissing as missing:
        print(f"Kafka cannot be started: {missing}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.kafka", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="check that every figure runs; the values are meaningless")
    parser.add_argument("--only", default="", metavar="WORD", help="only the measurements with this in their name")
    parser.add_argument("--flush", choices=FLUSHES, help="only this flush mode; default: both")
    parser.add_argument("--folder", type=Path, help="folder for 3 GB of temporary files; default: TMPDIR or build/")
    return parser


def _compare(sizes: KafkaSizes, names: Sequence[str], flushes: Sequence[str], folder: Path) -> None:
    measures: dict[str, Measure] = {}
    with ExitStack() as stack:
        if any(name in MEASURES for name in names):
            peer = stack.enter_context(kafka_in(folder / KAFKA))
            kafka = Broker(KAFKA, "127.0.0.1", peer.port, peer.pid)
            every = {flush: stack.enter_context(start_brokers(kafka, flush, folder)) for flush in flushes}
            for brokers in every.values():
                warm_up(sizes, brokers, sizes.warm_seconds / len(every))
            age_s = time.perf_counter() - peer.started_s
            print(f"Kafka {VERSION} has run for {age_s:.0f} s, most of them under load", file=sys.stderr)
            for flush, brokers in every.items():
                for name in names:
                    if name in MEASURES:
                        measures[f"{name}, {flush}"] = partial(MEASURES[name], sizes, brokers)
        if FOOTPRINT in names:
            measures[FOOTPRINT] = partial(kafka_footprint.measure, sizes, folder)
        run(measures, KAFKA)


@contextmanager
def start_brokers(kafka: Broker, flush: str, folder: Path) -> Iterator[Brokers]:
    """Starts TriMQ with both modes of record validation. The given Kafka is shared: its flush mode is set per topic."""
    ours = {}
    with ExitStack() as stack:
        for validation in ("full", "header"):
            place = folder / f"{flush}-{validation}"
            stack.callback(shutil.rmtree, place, ignore_errors=True)
            flags = ["--flush", flush, "--kafka-record-validation", validation]
            broker = stack.enter_context(broker_in(place, flags))
            host, port = broker.addresses["kafka"].rsplit(":", 1)
            ours[validation] = Broker(f"ours-{validation}", host, int(port), broker.pid)
        settings = KAFKA_TOPICS[flush]
        yield Brokers(flush, Broker(kafka.name, kafka.host, kafka.port, kafka.pid, settings), ours)


def warm_up(sizes: KafkaSizes, brokers: Brokers, seconds: float) -> None:
    """Sends all kinds of requests, mostly to Kafka; TriMQ has no JIT compiler and gets each kind once."""
    until_s = time.perf_counter() + seconds
    turn = 0
    while turn == 0 or time.perf_counter() < until_s:
        for broker in brokers.all() if turn == 0 else [brokers.kafka]:
            for raw in kafka_produce.RAW_REQUESTS:
                kafka_produce.produce_raw(sizes, broker, raw)
            kafka_reads.exercise(sizes, broker)
        turn += 1


if __name__ == "__main__":
    # SIGTERM ends the run like Ctrl-C, so that the started brokers are stopped too.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(main())
