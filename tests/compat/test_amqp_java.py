"""RabbitMQ's own Java client."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from compat import queue_judges
from compat.java import amqp_java_client
from compat.programs import Program

from tools.broker import running

pytestmark = [pytest.mark.external, pytest.mark.timeout(600)]

VERSION = "5.35.0"


@pytest.fixture(scope="module")
def program() -> Program:
    return amqp_java_client(VERSION)


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running(tmp_path_factory.mktemp("broker"), ["--amqp-listen", "127.0.0.1:0"]) as addresses:
        yield addresses["amqp"]


def test_what_is_published_is_confirmed_or_refused(program: Program, address: str) -> None:
    queue_judges.judge_confirms(program, address)


def test_a_message_without_a_route_comes_back_before_its_confirm(program: Program, address: str) -> None:
    queue_judges.judge_returns(program, address)


def test_a_consumer_gets_no_more_than_its_prefetch(program: Program, address: str) -> None:
    queue_judges.judge_prefetch(program, address)


def test_what_a_lost_connection_had_comes_again(program: Program, address: str) -> None:
    queue_judges.judge_cut(program, address)


def test_what_is_rejected_goes_round_by_way_of_dead_letters(program: Program, address: str) -> None:
    queue_judges.judge_dead_letters(program, address)


def test_questions_are_answered_by_direct_reply(program: Program, address: str) -> None:
    queue_judges.judge_rpc(program, address)


def test_bodies_of_any_size_come_back(program: Program, address: str) -> None:
    queue_judges.judge_bodies(program, address)


def test_headers_keep_their_types(program: Program, address: str) -> None:
    queue_judges.judge_headers(program, address)


def test_a_transaction_is_seen_when_it_is_committed(program: Program, address: str) -> None:
    queue_judges.judge_transactions(program, address)


def test_a_mistake_closes_the_channel_and_not_the_connection(program: Program, address: str) -> None:
    queue_judges.judge_mistakes(program, address)


def test_the_end_of_a_queue_is_told_to_its_consumer(program: Program, address: str) -> None:
    queue_judges.judge_cancelling(program, address)


def test_a_thousand_queues(program: Program, address: str) -> None:
    queue_judges.judge_many_queues(program, address, 1000)
