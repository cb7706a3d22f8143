"""Every figure of `make bench-amqp` is measured with tiny sizes. TriMQ takes the place of RabbitMQ, which comes from
Debian's packages, except in the last test. The values are ignored: no test depends on the speed of a machine."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench import amqp_footprint
from bench.amqp import MEASURES, NAMES, main
from bench.amqp_brokers import RABBITMQ, Broker, Brokers, queue_on, work_figures
from bench.amqp_footprint import start_ours
from bench.amqp_load import Publisher, drive
from bench.amqp_sizes import AMQP_QUICK
from bench.amqp_traffic import consume, fill
from bench.amqp_wire import Client, WireFailed
from bench.broker_rounds import Outcome, Result
from bench.comparison import OURS
from bench.comparison_page import as_page
from bench.figures import Figure, at_most
from bench.runner import Steps

FIELDS = {"figure", "value", "unit", "rabbitmq", "ratio", "goal", "met", "note"}


@pytest.fixture(scope="module", params=["async", "sync"])
def brokers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    with start_ours(tmp_path_factory.mktemp("ours"), request.param) as (ours, _):
        yield Brokers(request.param, Broker(RABBITMQ, ours.host, ours.port, ours.pid), ours)


def are_whole(figures: list[Figure]) -> bool:
    shown = [json.loads(figure.as_json()) for figure in figures]
    return bool(shown) and all(each.keys() == FIELDS and each["value"] >= 0 for each in shown)


@pytest.mark.parametrize("name", MEASURES)
def test_a_comparison_runs(name: str, brokers: Brokers) -> None:
    assert are_whole(list(MEASURES[name](AMQP_QUICK, brokers)))


def test_connections_come_and_go(brokers: Brokers) -> None:
    assert are_whole(list(amqp_footprint.measure_churn(AMQP_QUICK, brokers)))


def test_start_memory_and_queues_are_compared_and_leave_nothing_behind(tmp_path: Path) -> None:
    assert are_whole(list(amqp_footprint.measure(AMQP_QUICK, tmp_path, Steps(), start_ours)))
    assert list(tmp_path.iterdir()) == []


def test_the_counted_messages_are_those_published_and_consumed(brokers: Brokers) -> None:
    with queue_on(brokers.ours, brokers.kind) as queue, Client(brokers.ours.address) as client:
        fill(brokers.ours, queue, 100, 300)
        assert client.count(queue) == 300
        assert consume(brokers.ours, queue, 2, 10, 300).units == 300
        assert client.count(queue) == 0


def test_a_refused_message_is_no_figure(brokers: Brokers) -> None:
    """A broker that refuses everything would be the fastest of all."""
    with queue_on(brokers.ours, brokers.kind) as queue, Client(brokers.ours.address) as client:
        publisher = Publisher(client, queue, 100, 10, 10)
        publisher.client.delete(queue)
        client.declare(queue, brokers.kind)
        publisher.received(b"\x01\0\x01\0\0\0\x0d\0\x3c\0\x50" + bytes(7) + b"\x01\0\xce")
        assert publisher.confirmed == 1
        with pytest.raises(WireFailed, match="no confirm"):  # basic.nack
            publisher.received(b"\x01\0\x01\0\0\0\x0d\0\x3c\0\x78" + bytes(7) + b"\x02\0\xce")


def test_confirms_may_come_in_any_order(brokers: Brokers) -> None:
    with queue_on(brokers.ours, brokers.kind) as queue, Client(brokers.ours.address) as client:
        publisher = Publisher(client, queue, 100, 10, 10)
        drive([publisher], lambda: publisher.is_done)
        publisher.confirmed = 0
        confirm = b"\x01\0\x01\0\0\0\x0d\0\x3c\0\x50" + bytes(7) + b"%c%c\xce"
        publisher.received(confirm % (2, 0) + confirm % (5, 0))
        assert publisher.confirmed == 0
        publisher.received(confirm % (1, 0))
        assert publisher.confirmed == 2
        publisher.received(confirm % (4, 1))
        assert publisher.confirmed == 5


def test_the_page_has_processor_time_and_rate_of_a_work_in_one_line() -> None:
    ours, peer = Result([Outcome(1000, 0.01, 0.1)]), Result([Outcome(1000, 0.04, 0.1)])
    figures = [*work_figures("work", {OURS: ours, RABBITMQ: peer}, has_goals=True)]
    figures.append(Figure("memory", 50.0, "MB", 100.0, at_most(70), "", RABBITMQ))
    lines = as_page(figures, "RabbitMQ", "goals").splitlines()
    assert lines[2] == "| work | 10 | 40 | 0.25 | 10,000 | 10,000 | 1 | met, **missed** |"
    assert lines[-1] == "| memory | 50 MB | 100 | 0.5 | ≤ 70 | met |"


def test_an_unknown_comparison_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--only", "nothing of that kind"]) == 2
    assert NAMES[0] in capsys.readouterr().err


@pytest.mark.external
@pytest.mark.timeout(300)
def test_rabbitmq_itself_is_started_measured_and_stopped(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["--quick", "--only", "latency", "--flush", "sync", "--folder", str(tmp_path)]) == 0
    line, *rest = capfd.readouterr().out.splitlines()
    assert json.loads(line).keys() == FIELDS
    assert any("load average" in each for each in rest)
    assert list(tmp_path.iterdir()) == []
