"""Kafka clients in other languages, each a program judged by its output, against a broker of its own: franz-go (version
in go.mod), kafkajs (package.json), and Kafka's Java client in two versions: 4.3 in full, and 3.9, the last before 4,
for the features that differ between releases."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
from compat import administration, judges
from compat.brokers import CompatBroker
from compat.golang import go_client
from compat.java import java_client
from compat.node import node_client
from compat.programs import Program

pytestmark = [pytest.mark.external, pytest.mark.timeout(600)]

JAVA_3_9 = "3.9.2"
JAVA_4_3 = "4.3.1"
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
ASSIGNORS = ("Range", "RoundRobin", "Sticky", "CooperativeSticky")


class Client(NamedTuple):
    """Program of a client, its names of errors, and the scenarios that it runs."""

    program: Callable[[], Program]
    too_large: str = "MESSAGE_TOO_LARGE"
    fenced: Sequence[str] = ("ProducerFencedException",)
    acknowledgements: Sequence[str] = ("0", "1", "all")
    topics: int = 50


CLIENTS = {
    "franz-go": Client(lambda: go_client("go"), fenced=("PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH")),
    "kafkajs": Client(lambda: node_client("node"), fenced=("INVALID_PRODUCER_EPOCH",)),
    "java-3.9": Client(lambda: java_client(JAVA_3_9), "RecordTooLargeException", acknowledgements=("0", "all")),
    "java-4.3": Client(lambda: java_client(JAVA_4_3, "NewerClient"), "RecordTooLargeException", topics=1000),
}


def only(*names: str) -> pytest.MarkDecorator:
    """Restricts a test to these clients."""
    return pytest.mark.parametrize("client", names, indirect=True, scope="module")


@pytest.fixture(scope="module", params=CLIENTS)
def client(request: pytest.FixtureRequest) -> Client:
    return CLIENTS[request.param]


@pytest.fixture(scope="module")
def program(client: Client) -> Program:
    return client.program()


@pytest.fixture(scope="module")
def broker(client: Client, tmp_path_factory: pytest.TempPathFactory) -> Iterator[CompatBroker]:
    with CompatBroker(tmp_path_factory.mktemp("broker")) as broker:
        yield broker


def test_every_codec_with_every_kind_of_acknowledgement(client: Client, program: Program, broker: CompatBroker) -> None:
    judges.judge_codecs(program, broker, CODECS, client.acknowledgements)


def test_an_idempotent_producer_keeps_its_order(program: Program, broker: CompatBroker) -> None:
    judges.judge_idempotence(program, broker)


def test_large_messages_pass_and_too_large_ones_are_refused(
    client: Client, program: Program, broker: CompatBroker
) -> None:
    judges.judge_large_messages(program, broker, client.too_large)


def test_committed_records_are_read_and_aborted_ones_are_not(program: Program, broker: CompatBroker) -> None:
    judges.judge_transactions(program, broker)


def test_offsets_are_committed_with_the_transaction_or_not_at_all(program: Program, broker: CompatBroker) -> None:
    judges.judge_transactional_offsets(program, broker)


def test_a_fenced_producer_cannot_commit(client: Client, program: Program, broker: CompatBroker) -> None:
    judges.judge_fencing(program, broker, client.fenced)


def test_a_consumer_and_its_group_resume_after_a_restart(program: Program, tmp_path: Path) -> None:
    judges.judge_restart(program, tmp_path)


def test_a_look_up_by_time_finds_its_record(program: Program, broker: CompatBroker) -> None:
    judges.judge_times(program, broker)


def test_many_topics(client: Client, program: Program, broker: CompatBroker) -> None:
    judges.judge_many_topics(program, broker, client.topics)


# -- groups


@only("franz-go")
@pytest.mark.parametrize("assignor", ["range", "roundrobin", "sticky", "cooperative-sticky"])
def test_franz_go_shares_the_partitions_of_classic_groups(
    program: Program, broker: CompatBroker, assignor: str
) -> None:
    judges.judge_groups(program, broker, f"classic-{assignor}", assignor=assignor, protocol="classic")


@only("franz-go")
def test_franz_go_shares_the_partitions_of_groups_of_the_newer_protocol(program: Program, broker: CompatBroker) -> None:
    judges.judge_groups(program, broker, "newer", assignor="sticky", protocol="consumer")


@only("kafkajs")
def test_kafkajs_shares_the_partitions(program: Program, broker: CompatBroker) -> None:
    """Round robin is its only assignor."""
    judges.judge_groups(program, broker, "shared")


@only("java-3.9")
def test_java_shares_the_partitions_of_classic_groups_by_default(program: Program, broker: CompatBroker) -> None:
    judges.judge_groups(program, broker, "classic", **{"heartbeat.interval.ms": "300"})


@only("java-4.3")
@pytest.mark.parametrize("assignor", ASSIGNORS)
def test_java_shares_the_partitions_of_classic_groups(program: Program, broker: CompatBroker, assignor: str) -> None:
    name = f"org.apache.kafka.clients.consumer.{assignor}Assignor"
    own = {"partition.assignment.strategy": name, "heartbeat.interval.ms": "300"}
    judges.judge_groups(program, broker, f"classic-{assignor}", **own)


@only("java-4.3")
@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_java_shares_the_partitions_of_groups_of_the_newer_protocol(
    program: Program, broker: CompatBroker, assignor: str
) -> None:
    own = {"group.protocol": "consumer", "group.remote.assignor": assignor}
    judges.judge_groups(program, broker, f"newer-{assignor}", **own)


@only("java-4.3")
def test_a_pattern_evaluated_by_the_broker_matches_topics_created_later(program: Program, broker: CompatBroker) -> None:
    before, after = program.run(broker.address, "patterns")
    assert before == {"topics": ["matched-a", "matched-b"]}
    assert after == {"topics": ["matched-a", "matched-b", "matched-c"]}


# -- administration


@only("franz-go")
def test_franz_go_administers_topics_and_groups(program: Program, broker: CompatBroker) -> None:
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


@only("kafkajs")
def test_kafkajs_administers_topics_and_groups(program: Program, broker: CompatBroker) -> None:
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


@only("java-3.9", "java-4.3")
def test_topics_are_administered(program: Program, broker: CompatBroker) -> None:
    administration.judge_topics(program, broker)


@pytest.mark.parametrize(
    ("client", "protocol"),
    [("java-3.9", "classic"), ("java-4.3", "classic"), ("java-4.3", "consumer")],
    indirect=["client"],
    scope="module",
)
def test_groups_are_administered(program: Program, broker: CompatBroker, protocol: str) -> None:
    administration.judge_groups(program, broker, protocol)


@only("java-3.9", "java-4.3")
def test_everything_else_is_administered(program: Program, broker: CompatBroker) -> None:
    administration.judge_the_rest(program, broker)


@only("java-4.3")
def test_newer_calls_of_the_administrator(program: Program, broker: CompatBroker) -> None:
    lines = {line["call"]: line for line in program.run(broker.address, "admin-newer")}
    assert lines["listConfigResources"]["topics"] == ["listed"]
    assert lines["listGroups"]["groups"] == [["listed", "Consumer", "Stable"]]
    assert lines["describeFeatures"]["refused"] == "none"
