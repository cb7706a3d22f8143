"""franz-go, the Go client: a smoke set, and groups of both protocols; go.mod says which version."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from compat import judges
from compat.brokers import CompatBroker
from compat.golang import go_client
from compat.programs import Program

pytestmark = [pytest.mark.external, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def program() -> Program:
    return go_client("go")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CompatBroker]:
    with CompatBroker(tmp_path_factory.mktemp("broker")) as broker:
        yield broker


def test_every_codec_with_every_kind_of_acknowledgement(program: Program, broker: CompatBroker) -> None:
    judges.judge_codecs(program, broker, ("none", "gzip", "snappy", "lz4", "zstd"), ("0", "1", "all"))


def test_an_idempotent_producer_keeps_its_order(program: Program, broker: CompatBroker) -> None:
    judges.judge_idempotence(program, broker)


def test_large_messages_travel_and_too_large_ones_are_refused(program: Program, broker: CompatBroker) -> None:
    judges.judge_large_messages(program, broker, "MESSAGE_TOO_LARGE")


def test_what_is_committed_is_read_and_what_is_aborted_is_not(program: Program, broker: CompatBroker) -> None:
    judges.judge_transactions(program, broker)


def test_offsets_are_committed_with_the_transaction_or_not_at_all(program: Program, broker: CompatBroker) -> None:
    judges.judge_transactional_offsets(program, broker)


def test_a_producer_that_is_taken_over_cannot_commit(program: Program, broker: CompatBroker) -> None:
    judges.judge_fencing(program, broker, ["PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"])


@pytest.mark.parametrize("assignor", ["range", "roundrobin", "sticky", "cooperative-sticky"])
def test_classic_groups_divide_the_partitions(program: Program, broker: CompatBroker, assignor: str) -> None:
    judges.judge_groups(program, broker, f"classic-{assignor}", assignor=assignor, protocol="classic")


def test_groups_of_the_newer_protocol_divide_the_partitions(program: Program, broker: CompatBroker) -> None:
    judges.judge_groups(program, broker, "newer", assignor="sticky", protocol="consumer")


def test_a_consumer_and_its_group_go_on_after_a_restart(program: Program, tmp_path: Path) -> None:
    judges.judge_restart(program, tmp_path)


def test_a_time_finds_its_record(program: Program, broker: CompatBroker) -> None:
    judges.judge_times(program, broker)


def test_fifty_topics(program: Program, broker: CompatBroker) -> None:
    judges.judge_many_topics(program, broker, 50)


def test_topics_and_groups_are_administered(program: Program, broker: CompatBroker) -> None:
    assert program.run(broker.address, "admin") == [
        {"call": "create", "refused": "none"},
        {"call": "create again", "refused": "TOPIC_ALREADY_EXISTS"},
        {"call": "grow", "refused": "none"},
        {"call": "alter", "refused": "none"},
        {"call": "alter badly", "refused": "INVALID_CONFIG"},
        {"call": "describe", "retention.ms": "5000"},
        {"call": "list", "partitions": 5},
        {"call": "cut", "start": 4},
        {"call": "ends", "end": 10},
        {"call": "commit", "refused": "none"},
        {"call": "lag", "state": "Empty", "lag": 6},
        {"call": "delete group", "refused": "none", "group": "governors"},
        {"call": "delete", "refused": "none"},
    ]
