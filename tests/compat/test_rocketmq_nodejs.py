"""rocketmq-nodejs, RocketMQ's C++ client 3 for Node (version in package.json): producer and push consumer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from compat import rocketmq_node
from compat.programs import Program

from trimq.testing import Broker

pytestmark = [pytest.mark.external, pytest.mark.timeout(300)]

LIBRARY = "rocketmq-nodejs"


@pytest.fixture(scope="module")
def program() -> Program:
    return rocketmq_node.client()


@pytest.fixture
def broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Broker]:
    monkeypatch.setenv("HOME", str(tmp_path))  # the client writes its logs there
    with rocketmq_node.broker_with_topics() as broker:
        yield broker


def test_groups_get_all_or_the_tags_that_they_ask_for(program: Program, broker: Broker) -> None:
    rocketmq_node.judge_push(program, broker, LIBRARY, "OK")


def test_a_failed_message_is_redelivered(program: Program, broker: Broker) -> None:
    rocketmq_node.judge_retries(program, broker, LIBRARY)


def test_sixteen_retries_then_a_dead_letter(program: Program, broker: Broker) -> None:
    rocketmq_node.judge_dead_letter(program, broker, LIBRARY)


def test_clients_live_on_while_the_name_server_does_not(program: Program, broker: Broker) -> None:
    rocketmq_node.judge_names(program, broker, LIBRARY)


def test_clients_live_on_while_the_broker_does_not(program: Program, broker: Broker) -> None:
    rocketmq_node.judge_restart(program, broker, LIBRARY)
