"""RocketMQ clients over gRPC, each a program judged by its output: Maven's `rocketmq-client-java`, npm's
`rocketmq-client-nodejs` (version in package.json) and PyPI's `rocketmq-python-client`."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from compat import rocketmq_grpc as judges
from compat.node import node_client
from compat.programs import SOURCES, Program
from compat.rocketmq_java import grpc_client

from trimq.testing import Broker

pytestmark = pytest.mark.timeout(300)

VERSION = "5.2.0"  # of the Java client


class Client(NamedTuple):
    """`program` takes the folder for the client's logs. `step` is shorter than its delay between two deliveries of a
    failed message."""

    program: Callable[[Path], Program]
    step: str = "1s"


def _node(home: Path) -> Program:
    program = node_client("rocketmq-grpc-node")
    return dataclasses.replace(program, environment={**program.environment, "HOME": str(home)})


def _python(home: Path) -> Program:
    """All features but lite topics. In a process of its own: its threads end only with the process."""
    source = SOURCES / "rocketmq-grpc-python" / "client.py"
    return Program((sys.executable, "-W", "ignore", str(source)), {"HOME": str(home)})


CLIENTS = {
    "java": Client(lambda home: grpc_client(VERSION, home)),
    "node": Client(_node, step="4ms"),  # it takes the broker's seconds for milliseconds
    "python": Client(_python),
}
INSTALLED = {"python"}  # installed by `make test`; the others are downloaded and built


@pytest.fixture(
    params=[pytest.param(name, marks=[] if name in INSTALLED else pytest.mark.external) for name in CLIENTS]
)
def client(request: pytest.FixtureRequest) -> Client:
    return CLIENTS[request.param]


@pytest.fixture
def program(client: Client, tmp_path: Path) -> Program:
    return client.program(tmp_path)


@pytest.fixture
def broker() -> Iterator[Broker]:
    with judges.serving() as broker:
        yield broker


def test_messages_are_received_as_they_were_sent(program: Program, broker: Broker) -> None:
    judges.judge_sync(program, broker)


def test_responses_are_passed_to_futures(program: Program, broker: Broker) -> None:
    judges.judge_async(program, broker)


def test_tags_and_sql_expressions_filter(program: Program, broker: Broker) -> None:
    judges.judge_filters(program, broker)


def test_large_messages_pass_and_too_large_ones_are_refused(program: Program, broker: Broker) -> None:
    judges.judge_large(program, broker)


def test_a_push_consumer_gets_everything_once(program: Program, broker: Broker) -> None:
    judges.judge_push(program, broker)


def test_the_messages_of_a_message_group_are_delivered_in_order(program: Program, broker: Broker) -> None:
    judges.judge_fifo(program, broker)


def test_a_lease_is_extended_or_returned(program: Program, broker: Broker) -> None:
    judges.judge_invisible(program, broker)


def test_delivery_times_and_recalls(program: Program, broker: Broker) -> None:
    judges.judge_delays(program, broker)


def test_transactions_are_decided_or_checked_back(program: Program, broker: Broker) -> None:
    judges.judge_transactions(program, broker)


def test_a_message_that_fails_too_often_is_dead_lettered(client: Client, program: Program, broker: Broker) -> None:
    judges.judge_dead_letter(program, broker, client.step)


def test_clients_survive_an_outage_of_the_broker(program: Program, broker: Broker) -> None:
    judges.judge_restart(program, broker)
