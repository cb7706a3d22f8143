"""RabbitMQ clients in other languages, each a program judged by its output, against a broker of its own. Versions are
in go.mod, package.json and Cargo.toml."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from compat import queue_judges
from compat.golang import go_client
from compat.java import amqp_java_client
from compat.node import node_client
from compat.programs import Program
from compat.rust import rust_client

from tools.broker import running

pytestmark = [pytest.mark.external, pytest.mark.timeout(600)]

VERSION = "5.35.0"  # of RabbitMQ's Java client

CLIENTS: dict[str, Callable[[], Program]] = {
    "amqp091-go": lambda: go_client("amqp091-go"),
    "amqp-java": lambda: amqp_java_client(VERSION),
    "amqplib": lambda: node_client("amqplib"),
    "lapin": lambda: rust_client("lapin"),
}
TRANSACTIONAL = sorted(CLIENTS.keys() - {"amqplib"})  # amqplib has no transactions


@pytest.fixture(scope="module", params=CLIENTS)
def client(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def program(client: str) -> Program:
    return CLIENTS[client]()


@pytest.fixture(scope="module")
def address(client: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running(tmp_path_factory.mktemp(client), ["--amqp-listen", "127.0.0.1:0"]) as addresses:
        yield addresses["amqp"]


def test_published_messages_are_confirmed_or_rejected(program: Program, address: str) -> None:
    queue_judges.judge_confirms(program, address)


def test_a_message_without_a_route_is_returned_before_its_confirm(program: Program, address: str) -> None:
    queue_judges.judge_returns(program, address)


def test_a_consumer_gets_no_more_than_its_prefetch(program: Program, address: str) -> None:
    queue_judges.judge_prefetch(program, address)


def test_unacked_messages_of_a_lost_connection_are_redelivered(program: Program, address: str) -> None:
    queue_judges.judge_cut(program, address)


def test_a_rejected_message_is_dead_lettered_and_returned(program: Program, address: str) -> None:
    queue_judges.judge_dead_letters(program, address)


def test_rpc_requests_are_answered_by_direct_reply(program: Program, address: str) -> None:
    queue_judges.judge_rpc(program, address)


def test_bodies_of_any_size_survive_a_round_trip(program: Program, address: str) -> None:
    queue_judges.judge_bodies(program, address)


def test_headers_keep_their_types(program: Program, address: str) -> None:
    queue_judges.judge_headers(program, address)


@pytest.mark.parametrize("client", TRANSACTIONAL, indirect=True, scope="module")
def test_a_transaction_is_visible_when_it_is_committed(program: Program, address: str) -> None:
    queue_judges.judge_transactions(program, address)


def test_an_error_closes_the_channel_and_not_the_connection(program: Program, address: str) -> None:
    queue_judges.judge_mistakes(program, address)


def test_the_deletion_of_a_queue_cancels_its_consumer(program: Program, address: str) -> None:
    queue_judges.judge_cancelling(program, address)


def test_a_thousand_queues(program: Program, address: str) -> None:
    queue_judges.judge_many_queues(program, address, 1000)
