"""Every figure of `make bench-kafka` is measured with tiny sizes. TriMQ takes the place of Apache Kafka, which needs
Java, except in the last test. The values are ignored: no test depends on the speed of a machine."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench import kafka_footprint
from bench.broker_rounds import Outcome, run_rounds
from bench.figures import Figure
from bench.kafka import MEASURES, NAMES, main, start_brokers
from bench.kafka_brokers import KAFKA, Broker, Brokers, topic_on
from bench.kafka_sizes import KAFKA_QUICK
from bench.kafka_wire import WireFailed, encode_batch, encode_produce, produce_until
from bench.processes import broker_in

FIELDS = {"figure", "value", "unit", "kafka", "ratio", "goal", "met", "note"}


@pytest.fixture(scope="module")
def stand_in(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with broker_in(tmp_path_factory.mktemp("stand-in")) as broker:
        host, port = broker.addresses["kafka"].rsplit(":", 1)
        yield Broker(KAFKA, host, int(port), broker.pid)


@pytest.fixture(scope="module")
def brokers(stand_in: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    with start_brokers(stand_in, "sync", tmp_path_factory.mktemp("brokers")) as found:
        yield found


def are_whole(figures: list[Figure]) -> bool:
    shown = [json.loads(figure.as_json()) for figure in figures]
    return bool(shown) and all(each.keys() == FIELDS and each["value"] >= 0 for each in shown)


@pytest.mark.parametrize("name", MEASURES)
def test_a_comparison_runs(name: str, brokers: Brokers) -> None:
    assert are_whole(list(MEASURES[name](KAFKA_QUICK, brokers)))


def test_start_and_memory_are_compared_and_leave_nothing_behind(tmp_path: Path) -> None:
    assert are_whole(list(kafka_footprint.measure(KAFKA_QUICK, tmp_path, kafka_footprint.start_ours)))
    assert list(tmp_path.iterdir()) == []


def test_a_refused_request_is_no_figure(brokers: Brokers) -> None:
    """A broker that refuses everything would be the fastest of all."""
    broker = brokers.ours["full"]
    batch = bytearray(encode_batch(1, 100))
    batch[-1] ^= 1  # invalid checksum
    with topic_on(broker, 1) as topic, pytest.raises(WireFailed, match="refused"):
        produce_until(broker.address, topic, [encode_produce(topic, 0, bytes(batch), acks=1)], 2, 4, 1.0)


def test_the_best_of_the_rounds_counts_and_each_side_is_first_once() -> None:
    order: list[str] = []

    def work(broker: Broker) -> Outcome:
        order.append(broker.name)
        return Outcome(10, float(len(order)), 1.0 / len(order))

    results = run_rounds([Broker(name, "", 0, 0) for name in "ab"], 2, work)
    assert order == ["a", "b", "b", "a"]
    assert (results["a"].cpu_us, results["a"].rate) == (1e5, 40.0)
    assert (results["b"].cpu_us, results["b"].rate) == (2e5, 30.0)


def test_an_unknown_comparison_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--only", "nothing of that kind"]) == 2
    assert NAMES[0] in capsys.readouterr().err


@pytest.mark.external
@pytest.mark.timeout(300)
def test_kafka_itself_is_started_measured_and_stopped(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["--quick", "--only", "fetch", "--flush", "sync", "--folder", str(tmp_path)]) == 0
    line, *rest = capfd.readouterr().out.splitlines()
    assert json.loads(line).keys() == FIELDS
    assert any("load average" in each for each in rest)
    assert list(tmp_path.iterdir()) == []
