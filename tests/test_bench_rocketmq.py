"""Every figure of `make bench-rocketmq` is measured with tiny sizes. TriMQ takes the place of Apache RocketMQ, which
needs Java, except in the last test. The values are ignored: no test depends on the speed of a machine."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench import rocketmq_delays, rocketmq_footprint
from bench.figures import Figure
from bench.pipelined_load import WireFailed, drive
from bench.processes import ChildFailed
from bench.rocketmq import MEASURES, NAMES, main
from bench.rocketmq_brokers import ROCKETMQ, Broker, Brokers, start_ours, topic_on
from bench.rocketmq_sizes import ROCKETMQ_QUICK
from bench.rocketmq_traffic import BATCH, fill
from bench.rocketmq_wire import (
    Client,
    PullPipeline,
    SendPipeline,
    UniqueKeyPipeline,
    encode_pipelines,
    encode_pull,
    encode_send,
)
from bench.runner import Steps
from trimq.formats.rocketmq_unit.properties import read_properties
from trimq.formats.rocketmq_unit.unit import iterate_units

FIELDS = {"figure", "value", "unit", "rocketmq", "ratio", "goal", "met", "note"}


@pytest.fixture(scope="module", params=["async", "sync"])
def brokers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    with start_ours(tmp_path_factory.mktemp("ours"), request.param) as (ours, _):
        yield Brokers(request.param, Broker(ROCKETMQ, ours.port, ours.grpc_port, ours.pid), ours)


def are_whole(figures: list[Figure]) -> bool:
    shown = [json.loads(figure.as_json()) for figure in figures]
    return bool(shown) and all(each.keys() == FIELDS and each["value"] >= 0 for each in shown)


@pytest.mark.parametrize("name", MEASURES)
def test_a_comparison_runs(name: str, brokers: Brokers) -> None:
    assert are_whole(list(MEASURES[name](ROCKETMQ_QUICK, brokers)))


@pytest.mark.parametrize("measure", [rocketmq_footprint.measure, rocketmq_delays.measure])
def test_start_memory_and_delays_are_compared_and_leave_nothing_behind(measure: Any, tmp_path: Path) -> None:
    assert are_whole(list(measure(ROCKETMQ_QUICK, tmp_path, Steps(), start_ours)))
    assert list(tmp_path.iterdir()) == []


def test_figures_of_ours_stay_when_the_other_side_fails(tmp_path: Path) -> None:
    @contextmanager
    def start_broken(folder: Path, flush: str) -> Iterator[tuple[Broker, float]]:
        raise ChildFailed("planted")
        yield

    figures = list(rocketmq_delays.measure(ROCKETMQ_QUICK, tmp_path, Steps(), start_broken))
    assert are_whole(figures)
    assert all(figure.floor is None and "planted" in figure.note for figure in figures)


def test_a_side_has_a_time_limit_and_its_figures_up_to_then_are_kept(tmp_path: Path) -> None:
    sizes = replace(ROCKETMQ_QUICK, delayed_seconds=0.0)
    assert list(rocketmq_delays.measure(sizes, tmp_path, Steps(), start_ours)) == []


def test_messages_that_fell_due_while_they_were_sent_are_sent_again_with_more_time(tmp_path: Path) -> None:
    """Independent of the speed of the machine: with no spare time, a message is always due before it is sent."""
    sizes = replace(ROCKETMQ_QUICK, delayed=1, spare_seconds=0.0)
    assert are_whole(list(rocketmq_delays.measure(sizes, tmp_path, Steps(), start_ours)))


def test_no_two_delayed_messages_have_one_key(brokers: Brokers) -> None:
    with topic_on(brokers.ours, 1) as topic:
        requests = [encode_send(topic, 0, b"x", number) for number in range(3)]
        pipelines = [UniqueKeyPipeline(brokers.ours.address, requests, 2, 0)]
        sent = drive(pipelines, 10, 10.0)
        with Client(brokers.ours.address) as client:
            _, body = client.ask(encode_pull(topic, 0, 0, 32))
    keys = [read_properties(unit.properties)["UNIQ_KEY"] for unit in iterate_units(body)]
    assert len(set(keys)) == len(keys) == sent >= 10


def test_the_counted_messages_are_those_in_the_queues(brokers: Brokers) -> None:
    with topic_on(brokers.ours) as topic, Client(brokers.ours.address) as client:
        pipelines = [SendPipeline(brokers.ours.address, own, 4) for own in encode_pipelines(topic, 2, 2, 100)]
        sent = drive(pipelines, 100, 10.0)
        assert sent >= 100
        assert client.end(topic, 0) + client.end(topic, 1) == sent


def test_a_refused_message_is_no_figure(brokers: Brokers) -> None:
    """A broker that refuses everything would be the fastest of all."""
    with topic_on(brokers.ours, 1) as topic, pytest.raises(WireFailed, match="refused"):
        drive([SendPipeline(brokers.ours.address, [encode_send(topic, 7, b"x", 0)], 4)], 10, 10.0)


def test_a_message_that_a_busy_broker_refuses_is_counted_apart(brokers: Brokers) -> None:
    pipeline = SendPipeline(brokers.ours.address, [b"request"], 1)
    pipeline.connection.close()
    peer, pipeline.connection = socket.socketpair()
    with peer, pipeline.connection:
        peer.sendall(b'\0\0\0\x0e\0\0\0\x0a{"code":2,' + b'\0\0\0\x0e\0\0\0\x0a{"code":0,')
        assert (pipeline.receive(), pipeline.busy) == (2, 1)


def test_a_pull_that_brings_less_than_it_asked_for_is_no_figure(brokers: Brokers) -> None:
    with topic_on(brokers.ours, 1) as topic:
        fill(brokers.ours, topic, 1, 100, BATCH)
        requests = [encode_pull(topic, 0, offset, BATCH) for offset in (0, BATCH - 1)]
        with pytest.raises(WireFailed, match="a pull was answered with"):
            drive([PullPipeline(brokers.ours.address, requests, BATCH * 100)], 2, 10.0)


def test_an_unknown_comparison_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--only", "nothing of that kind"]) == 2
    assert NAMES[0] in capsys.readouterr().err


@pytest.mark.external
@pytest.mark.timeout(300)
def test_rocketmq_itself_is_started_measured_and_stopped(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["--quick", "--only", "latency", "--flush", "sync", "--folder", str(tmp_path)]) == 0
    line, *rest = capfd.readouterr().out.splitlines()
    assert json.loads(line).keys() == FIELDS
    assert any("load average" in each for each in rest)
    assert list(tmp_path.iterdir()) == []
