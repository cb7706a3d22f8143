"""Every figure of `make bench-cross` is measured with few messages. The values are ignored."""

from __future__ import annotations

import json

import pytest

from bench.cross import main

NAMES = [
    "Kafka reads a RocketMQ topic",
    "Kafka reads an AMQP queue",
    "RocketMQ pulls a Kafka topic",
    "AMQP takes and acks of a Kafka topic",
    "take and ack in a readership",
    "Kafka writes to a RocketMQ topic",
]


def test_every_figure_runs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--quick"]) == 0
    figures = [json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith("{")]
    assert [figure["figure"] for figure in figures] == NAMES
    assert all(figure["goal"] for figure in figures)
