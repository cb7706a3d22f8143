"""RocketMQ's Python client over gRPC (PyPI `rocketmq-python-client`): all that it has but lite topics. It runs in
a process of its own, whose threads end with it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from compat import rocketmq_grpc as judges
from compat.programs import SOURCES, Program

from trimq.testing import Broker

pytestmark = pytest.mark.timeout(180)


@pytest.fixture
def program(tmp_path: Path) -> Program:
    """Its logs go to a folder of the test."""
    source = SOURCES / "rocketmq-grpc-python" / "client.py"
    return Program((sys.executable, "-W", "ignore", str(source)), {"HOME": str(tmp_path)})


@pytest.fixture
def broker() -> Iterator[Broker]:
    with judges.serving() as broker:
        yield broker


def test_what_is_sent_is_received_as_it_was(program: Program, broker: Broker) -> None:
    judges.judge_sync(program, broker)


def test_answers_come_to_futures(program: Program, broker: Broker) -> None:
    judges.judge_async(program, broker)


def test_tags_and_expressions_choose(program: Program, broker: Broker) -> None:
    judges.judge_filters(program, broker)


def test_large_messages_travel_and_too_large_ones_are_refused(program: Program, broker: Broker) -> None:
    judges.judge_large(program, broker)


def test_a_push_consumer_gets_everything_once(program: Program, broker: Broker) -> None:
    judges.judge_push(program, broker)


def test_the_messages_of_a_group_come_in_order(program: Program, broker: Broker) -> None:
    judges.judge_fifo(program, broker)


def test_a_message_is_kept_for_longer_or_given_back(program: Program, broker: Broker) -> None:
    judges.judge_invisible(program, broker)


def test_times_of_delivery_and_recalling(program: Program, broker: Broker) -> None:
    judges.judge_delays(program, broker)


def test_transactions_are_decided_or_asked_for(program: Program, broker: Broker) -> None:
    judges.judge_transactions(program, broker)


def test_what_fails_too_often_is_a_dead_letter(program: Program, broker: Broker) -> None:
    judges.judge_dead_letter(program, broker)


def test_clients_live_on_while_the_broker_does_not(program: Program, broker: Broker) -> None:
    judges.judge_restart(program, broker)
