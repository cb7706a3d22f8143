"""Kafka's own Java client, 4.3: the full matrix."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from compat import administration, judges
from compat.brokers import CompatBroker
from compat.java import java_client
from compat.programs import Program

pytestmark = [pytest.mark.external, pytest.mark.timeout(600)]

VERSION = "4.3.1"
ASSIGNORS = ("Range", "RoundRobin", "Sticky", "CooperativeSticky")


@pytest.fixture(scope="module")
def program() -> Program:
    return java_client(VERSION, "NewerClient")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CompatBroker]:
    with CompatBroker(tmp_path_factory.mktemp("broker")) as broker:
        yield broker


def test_every_codec_with_every_kind_of_acknowledgement(program: Program, broker: CompatBroker) -> None:
    judges.judge_codecs(program, broker, ("none", "gzip", "snappy", "lz4", "zstd"), ("0", "1", "all"))


def test_an_idempotent_producer_keeps_its_order(program: Program, broker: CompatBroker) -> None:
    judges.judge_idempotence(program, broker)


def test_large_messages_travel_and_too_large_ones_are_refused(program: Program, broker: CompatBroker) -> None:
    judges.judge_large_messages(program, broker, "RecordTooLargeException")


def test_what_is_committed_is_read_and_what_is_aborted_is_not(program: Program, broker: CompatBroker) -> None:
    judges.judge_transactions(program, broker)


def test_offsets_are_committed_with_the_transaction_or_not_at_all(program: Program, broker: CompatBroker) -> None:
    judges.judge_transactional_offsets(program, broker)


def test_a_producer_that_is_taken_over_cannot_commit(program: Program, broker: CompatBroker) -> None:
    judges.judge_fencing(program, broker, ["ProducerFencedException"])


@pytest.mark.parametrize("assignor", ASSIGNORS)
def test_classic_groups_divide_the_partitions(program: Program, broker: CompatBroker, assignor: str) -> None:
    name = f"org.apache.kafka.clients.consumer.{assignor}Assignor"
    own = {"partition.assignment.strategy": name, "heartbeat.interval.ms": "300"}
    judges.judge_groups(program, broker, f"classic-{assignor}", **own)


@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_groups_of_the_newer_protocol_divide_the_partitions(
    program: Program, broker: CompatBroker, assignor: str
) -> None:
    own = {"group.protocol": "consumer", "group.remote.assignor": assignor}
    judges.judge_groups(program, broker, f"newer-{assignor}", **own)


def test_a_pattern_that_the_broker_matches_finds_later_topics_too(program: Program, broker: CompatBroker) -> None:
    before, after = program.run(broker.address, "patterns")
    assert before == {"topics": ["matched-a", "matched-b"]}
    assert after == {"topics": ["matched-a", "matched-b", "matched-c"]}


def test_a_consumer_and_its_group_go_on_after_a_restart(program: Program, tmp_path: Path) -> None:
    judges.judge_restart(program, tmp_path)


def test_a_time_finds_its_record(program: Program, broker: CompatBroker) -> None:
    judges.judge_times(program, broker)


def test_a_thousand_topics(program: Program, broker: CompatBroker) -> None:
    judges.judge_many_topics(program, broker, 1000)


def test_topics_are_administered(program: Program, broker: CompatBroker) -> None:
    administration.judge_topics(program, broker)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_groups_are_administered(program: Program, broker: CompatBroker, protocol: str) -> None:
    administration.judge_groups(program, broker, protocol)


def test_all_else_is_administered(program: Program, broker: CompatBroker) -> None:
    administration.judge_the_rest(program, broker)


def test_newer_calls_of_the_administrator(program: Program, broker: CompatBroker) -> None:
    lines = {line["call"]: line for line in program.run(broker.address, "admin-newer")}
    assert lines["listConfigResources"]["topics"] == ["listed"]
    assert lines["listGroups"]["groups"] == [["listed", "Consumer", "Stable"]]
    assert lines["describeFeatures"]["refused"] == "none"
