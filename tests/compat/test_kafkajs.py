"""kafkajs, the Node client: a smoke set; package.json says which version. Round robin is the one assignor it has."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from compat import judges
from compat.brokers import CompatBroker
from compat.node import node_client
from compat.programs import Program

pytestmark = [pytest.mark.external, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def program() -> Program:
    return node_client("node")


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
    judges.judge_fencing(program, broker, ["INVALID_PRODUCER_EPOCH"])


def test_groups_divide_the_partitions(program: Program, broker: CompatBroker) -> None:
    judges.judge_groups(program, broker, "shared")


def test_a_consumer_and_its_group_go_on_after_a_restart(program: Program, tmp_path: Path) -> None:
    judges.judge_restart(program, tmp_path)


def test_a_time_finds_its_record(program: Program, broker: CompatBroker) -> None:
    judges.judge_times(program, broker)


def test_fifty_topics(program: Program, broker: CompatBroker) -> None:
    judges.judge_many_topics(program, broker, 50)


def test_topics_and_groups_are_administered(program: Program, broker: CompatBroker) -> None:
    assert program.run(broker.address, "admin") == [
        {"call": "describeCluster", "nodes": 1, "controller": 1},
        {"call": "createTopics", "made": True},
        {"call": "createTopics again", "made": False},
        {"call": "createPartitions", "refused": "none"},
        {"call": "fetchTopicMetadata", "partitions": 5},
        {"call": "alterConfigs", "refused": "none"},
        {"call": "alterConfigs", "refused": "INVALID_CONFIG"},
        {"call": "describeConfigs", "value": "5000"},
        {"call": "deleteTopicRecords", "refused": "none"},
        {"call": "fetchTopicOffsets", "low": 4, "high": 10},
        {"call": "describeGroups", "state": "Stable", "clients": ["me"]},
        {"call": "fetchOffsets", "offset": 10},
        {"call": "listGroups", "isListed": True},
        {"call": "deleteGroups", "refused": "none"},
        {"call": "describeAcls", "refused": "SECURITY_DISABLED"},
        {"call": "deleteTopics", "refused": "none"},
    ]
