"""Kafka's own Java client, 3.9, the last of the line before 4: what differs most from release to release."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from compat import administration, judges
from compat.brokers import CompatBroker
from compat.java import java_client
from compat.programs import Program

pytestmark = [pytest.mark.external, pytest.mark.timeout(600)]

VERSION = "3.9.2"


@pytest.fixture(scope="module")
def program() -> Program:
    return java_client(VERSION)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CompatBroker]:
    with CompatBroker(tmp_path_factory.mktemp("broker")) as broker:
        yield broker


def test_every_codec(program: Program, broker: CompatBroker) -> None:
    judges.judge_codecs(program, broker, ("none", "gzip", "snappy", "lz4", "zstd"), ("0", "all"))


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


def test_classic_groups_divide_the_partitions_in_the_way_that_is_the_default(
    program: Program, broker: CompatBroker
) -> None:
    judges.judge_groups(program, broker, "classic", **{"heartbeat.interval.ms": "300"})


def test_a_consumer_and_its_group_go_on_after_a_restart(program: Program, tmp_path: Path) -> None:
    judges.judge_restart(program, tmp_path)


def test_a_time_finds_its_record(program: Program, broker: CompatBroker) -> None:
    judges.judge_times(program, broker)


def test_fifty_topics(program: Program, broker: CompatBroker) -> None:
    judges.judge_many_topics(program, broker, 50)


def test_topics_are_administered(program: Program, broker: CompatBroker) -> None:
    administration.judge_topics(program, broker)


def test_groups_are_administered(program: Program, broker: CompatBroker) -> None:
    administration.judge_groups(program, broker, "classic")


def test_all_else_is_administered(program: Program, broker: CompatBroker) -> None:
    administration.judge_the_rest(program, broker)
