"""RocketMQ's Java client 4.9: the most common uses."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from compat import rocketmq_judges as judges
from compat.programs import Line, Program
from compat.rocketmq_java import lines_of, rocketmq_client, run_together

from tools.broker import running
from trimq.testing import Broker

pytestmark = [pytest.mark.external, pytest.mark.timeout(600)]

VERSION = "4.9.8"
JUDGES: dict[str, Callable[[list[Line]], None]] = {
    "sync": judges.judge_sync,
    "async": judges.judge_async,
    "oneway": judges.judge_one_way,
    "batch": judges.judge_batch,
    "large": judges.judge_large,
    "concurrent": judges.judge_concurrent,
    "orderly": judges.judge_orderly,
    "tags": judges.judge_tags,
    "groups": judges.judge_groups,
    "retried": judges.judge_retried,
    "pull": judges.judge_pull,
    "assign": judges.judge_assign,
    "requests": judges.judge_requests,
    "broadcast": judges.judge_broadcast,
    "sql": judges.judge_sql,
}


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Program:
    return rocketmq_client(VERSION, tmp_path_factory.mktemp("home"))


@pytest.fixture(scope="module")
def found(program: Program, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Line]]:
    with running(tmp_path_factory.mktemp("broker")) as addresses:
        return run_together(program, addresses["rocketmq"], JUDGES)


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.mark.parametrize("scenario", JUDGES)
def test_a_scenario_passes(scenario: str, found: dict[str, list[Line]]) -> None:
    JUDGES[scenario](lines_of(found, scenario))


def test_delay_levels_follow_the_brokers_clock(program: Program, broker: Broker) -> None:
    judges.judge_levels(program, broker)


def test_sixteen_retries_then_a_dead_letter_then_a_redrive(program: Program, broker: Broker) -> None:
    judges.judge_dead_letter(program, broker)


def test_the_offset_of_a_broadcast_consumer_survives_its_process(program: Program, broker: Broker) -> None:
    judges.judge_kept(program, broker.addresses["rocketmq"])


def test_running_clients_find_queues_added_to_a_topic(program: Program, broker: Broker) -> None:
    judges.judge_grown(program, broker)


def test_clients_survive_an_outage_of_the_name_server(program: Program, broker: Broker) -> None:
    judges.judge_names(program, broker)


def test_transactions_end_in_every_way(program: Program, broker: Broker) -> None:
    judges.judge_transactions(program, broker)


def test_clients_live_on_while_the_broker_does_not(program: Program, broker: Broker) -> None:
    judges.judge_restarts(program, broker.addresses["rocketmq"], [broker.restart])
