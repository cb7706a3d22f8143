"""Administration of clients: quotas, which throttle, and SCRAM credentials."""

from __future__ import annotations

from typing import Any

import pytest
from doubles import FaultyFiles
from protocols.kafka.desk import NOW_MS, Desk

from trimq.formats.kafka_batch.builder import from_records
from trimq.model import Record
from trimq.protocols.kafka.messages.credentials import (
    AlterUserScramCredentialsRequest,
    DescribeUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
    UserName,
)
from trimq.protocols.kafka.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from trimq.protocols.kafka.messages.quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntryData,
    ComponentData,
    DescribeClientQuotasRequest,
    EntityData,
    OpData,
)
from trimq.protocols.kafka.messages.topics import (
    CreatableTopic,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from trimq.protocols.kafka.names.codes import Code
from trimq.storage.io.files import Memory
from trimq.storage.io.memory_files import MemoryFiles

EXACT, DEFAULT, ANY = 0, 1, 2
Entity = list[tuple[str, str | None]]
CLIENT: Entity = [("client-id", "client")]


@pytest.fixture
def desk() -> Desk:
    return Desk()


def entry(entity: Entity, rates: dict[str, float | None]) -> AlterClientQuotasRequestEntryData:
    parts = [EntityData(entity_type=kind, entity_name=name) for kind, name in entity]
    operations = [OpData(key=key, value=rate or 0.0, remove=rate is None) for key, rate in rates.items()]
    return AlterClientQuotasRequestEntryData(entity=parts, ops=operations)


def alter(desk: Desk, entity: Entity, validate_only: bool = False, **rates: float | None) -> int:
    request = AlterClientQuotasRequest(entries=[entry(entity, rates)], validate_only=validate_only)
    (result,) = desk.ask(request).entries
    assert [(part.entity_type, part.entity_name) for part in result.entity] == entity
    assert (result.error_message is None) == (result.error_code == Code.NONE)
    code: int = result.error_code
    return code


def described(desk: Desk, *components: tuple[str, int, str | None], strict: bool = False) -> Any:
    asked = [ComponentData(entity_type=kind, match_type=match, match=name) for kind, match, name in components]
    found = desk.ask(DescribeClientQuotasRequest(components=asked, strict=strict))
    if found.error_code:
        assert found.entries is None
        return found.error_code
    assert found.error_message == ""
    return {
        tuple((part.entity_type, part.entity_name) for part in each.entity): {
            value.key: value.value for value in each.values
        }
        for each in found.entries
    }


# -- definitions


def test_quotas_are_set_described_and_removed(desk: Desk) -> None:
    assert alter(desk, [("user", "u")], producer_byte_rate=1000.0, consumer_byte_rate=2000.0) == Code.NONE
    assert alter(desk, [("user", None), ("client-id", "c")], producer_byte_rate=5.0) == Code.NONE
    everything = {
        (("user", "u"),): {"producer_byte_rate": 1000.0, "consumer_byte_rate": 2000.0},
        (("user", None), ("client-id", "c")): {"producer_byte_rate": 5.0},
    }
    assert described(desk) == everything
    desk = desk.restart()
    assert described(desk) == everything
    assert alter(desk, [("user", "u")], producer_byte_rate=None) == Code.NONE
    assert described(desk, ("user", EXACT, "u")) == {(("user", "u"),): {"consumer_byte_rate": 2000.0}}
    assert alter(desk, [("user", "u")], producer_byte_rate=None, consumer_byte_rate=None) == Code.NONE
    assert described(desk, ("user", EXACT, "u")) == {}


def test_the_last_name_counts_if_an_entity_has_two_of_a_type(desk: Desk) -> None:
    request = AlterClientQuotasRequest(entries=[entry([("user", "a"), ("user", "b")], {"producer_byte_rate": 1000.0})])
    (result,) = desk.ask(request).entries
    assert (result.error_code, [part.entity_name for part in result.entity]) == (Code.NONE, ["b"])
    assert described(desk) == {(("user", "b"),): {"producer_byte_rate": 1000.0}}


def test_components_filter_the_described_quotas(desk: Desk) -> None:
    entities: list[Entity] = [
        [("user", "u")],
        [("user", None)],
        [("user", "u"), ("client-id", "c")],
        [("client-id", "c")],
    ]
    for entity in entities:
        alter(desk, entity, producer_byte_rate=1.0)

    def found(*components: tuple[str, int, str | None], strict: bool = False) -> set[tuple[Any, ...]]:
        return set(described(desk, *components, strict=strict))

    user, default, both, client = map(tuple, entities)
    assert found(("user", EXACT, "u")) == {user, both}
    assert found(("user", EXACT, "u"), strict=True) == {user}
    assert found(("user", DEFAULT, None)) == {default}
    assert found(("user", ANY, None)) == {user, default, both}
    assert found(("client-id", ANY, None), strict=True) == {client}
    assert found(("user", ANY, None), ("client-id", EXACT, "c")) == {both}
    assert found(("ip", ANY, None)) == set()
    assert found() == {user, default, both, client}


@pytest.mark.parametrize(
    ("components", "code"),
    [
        ([("planet", EXACT, "x")], Code.UNSUPPORTED_VERSION),
        ([("user", 9, "x")], Code.INVALID_REQUEST),
        ([("user", EXACT, None)], Code.INVALID_REQUEST),
        ([("user", DEFAULT, "x")], Code.INVALID_REQUEST),
        ([("user", ANY, None), ("user", ANY, None)], Code.INVALID_REQUEST),
        ([("user", ANY, None), ("ip", ANY, None)], Code.INVALID_REQUEST),
    ],
)
def test_an_invalid_request_is_refused(desk: Desk, components: list[Any], code: Code) -> None:
    assert described(desk, *components) == code


@pytest.mark.parametrize("validate_only", [True, False])
@pytest.mark.parametrize(
    ("entity", "rates"),
    [
        ([], {"producer_byte_rate": 1.0}),
        ([("planet", "x")], {"producer_byte_rate": 1.0}),
        ([("user", "")], {"producer_byte_rate": 1.0}),
        ([("ip", "10.0.0.1")], {"connection_creation_rate": 1.0}),
        ([("user", "u")], {"producer_byte_rate": -1.0}),
        ([("user", "u")], {"producer_byte_rate": 1.5}),
        ([("user", "u")], {"producer_byte_rate": float("nan")}),
        ([("user", "u")], {"producer_byte_rate": float("inf")}),
        ([("user", "u")], {"nope": 1.0}),
        ([("user", "u")], {"request_percentage": 50.0}),
        ([("user", "u")], {"producer_byte_rate": 5.0, "request_percentage": 1.0}),
        ([("user", "u")], {"controller_mutation_rate": 0.0}),
        ([("user", "u")], {"controller_mutation_rate": float("nan")}),
        ([("user", "u")], {"controller_mutation_rate": float("inf")}),
    ],
)
def test_a_quota_that_is_not_enforced_is_refused(
    desk: Desk, entity: Entity, rates: dict[str, float], validate_only: bool
) -> None:
    assert alter(desk, entity, validate_only, **rates) == Code.INVALID_REQUEST
    assert described(desk) == {}


def test_good_entries_beside_a_bad_one_are_kept(desk: Desk) -> None:
    entries = [
        entry([("user", "a")], {"producer_byte_rate": 100.0}),
        entry([("user", "b")], {"nonsense": 1.0}),
        entry([("user", "a"), ("client-id", "c")], {"consumer_byte_rate": 5.0}),
        entry([("client-id", None)], {"request_percentage": 50.0}),
    ]
    results = desk.ask(AlterClientQuotasRequest(entries=entries)).entries
    assert [result.error_code for result in results] == [0, Code.INVALID_REQUEST, 0, Code.INVALID_REQUEST]
    assert "request_percentage is not supported" in results[3].error_message
    assert len(desk.core.broker.quotas.all(desk.caller)) == 2


def test_removing_a_quota_that_is_not_set_succeeds(desk: Desk) -> None:
    operations = [OpData(key="nonsense", remove=True), OpData(key="producer_byte_rate", remove=True)]
    changed = AlterClientQuotasRequestEntryData(
        entity=[EntityData(entity_type="user", entity_name="u")], ops=operations
    )
    assert desk.ask(AlterClientQuotasRequest(entries=[changed])).entries[0].error_code == Code.NONE


def test_a_repeated_quota_is_refused(desk: Desk) -> None:
    operations = [OpData(key="producer_byte_rate", value=value) for value in (1.0, 2.0)]
    changed = AlterClientQuotasRequestEntryData(
        entity=[EntityData(entity_type="user", entity_name="u")], ops=operations
    )
    assert desk.ask(AlterClientQuotasRequest(entries=[changed])).entries[0].error_code == Code.INVALID_REQUEST


def test_a_repeated_entity_is_refused_once(desk: Desk) -> None:
    entries = [entry([("user", "u")], {"producer_byte_rate": 1.0})] * 2
    results = desk.ask(AlterClientQuotasRequest(entries=entries)).entries
    assert [result.error_code for result in results] == [Code.INVALID_REQUEST]
    assert described(desk) == {(("user", "u"),): {"producer_byte_rate": 1.0}}  # as in Kafka


def test_a_validated_quota_is_not_set(desk: Desk) -> None:
    assert alter(desk, CLIENT, True, producer_byte_rate=1.0) == Code.NONE
    assert described(desk) == {}


# -- enforcement


def batch(size: int = 1000) -> bytearray:
    return from_records([Record(b"x" * size, timestamp_ms=NOW_MS)])


def produce(desk: Desk, sent: bytearray) -> Any:
    data = TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=sent)])
    return desk.ask(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[data]), 9)


def test_a_producer_above_its_rate_gets_a_throttle_time_and_is_not_read(desk: Desk) -> None:
    desk.create("t")
    assert produce(desk, batch()).throttle_time_ms == 0
    size = len(batch())
    alter(desk, CLIENT, producer_byte_rate=float(size))
    assert produce(desk, batch()).throttle_time_ms == 0  # exactly the quota of one second
    answer = produce(desk, batch())
    assert answer.responses[0].partition_responses[0].error_code == Code.NONE
    assert answer.throttle_time_ms == 1000
    assert desk.way.pauses_ms == [1000]
    desk.let_pass(2000)
    assert produce(desk, batch()).throttle_time_ms == 0


def test_a_consumer_above_its_rate_gets_nothing_until_it_is_within_it(desk: Desk) -> None:
    desk.create("t")
    produce(desk, batch())
    size = len(batch())
    alter(desk, CLIENT, consumer_byte_rate=float(size))
    for _ in range(2):
        answer = desk.fetch("t")
        assert answer.throttle_time_ms == 0
        assert len(answer.responses[0].partitions[0].records) == size
    answer = desk.fetch("t")
    assert (answer.throttle_time_ms, answer.responses, answer.session_id) == (1000, [], 0)
    assert desk.way.pauses_ms == [1000]
    desk.let_pass(1000)
    assert desk.fetch("t").throttle_time_ms == 0


def create(desk: Desk, name: str, partitions: int, version: int = 7, validate_only: bool = False) -> tuple[int, int]:
    """Error code and throttle time."""
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
    request = CreateTopicsRequest(topics=[topic], timeout_ms=1000, validate_only=validate_only)
    found = desk.ask(request, version)
    return found.topics[0].error_code, found.throttle_time_ms


@pytest.mark.parametrize("validate_only", [False, True])
def test_a_client_that_creates_more_partitions_than_its_rate_is_refused_until_it_is_within_it(
    desk: Desk, validate_only: bool
) -> None:
    assert alter(desk, CLIENT, controller_mutation_rate=0.5) == Code.NONE
    assert described(desk) == {(("client-id", "client"),): {"controller_mutation_rate": 0.5}}
    assert create(desk, "many", 10, validate_only=validate_only) == (Code.NONE, 0)  # a burst may be of any size
    wait_ms = (10 - 5.5) / 0.5 * 1000
    assert create(desk, "t", 1) == (Code.THROTTLING_QUOTA_EXCEEDED, wait_ms)
    assert desk.way.pauses_ms == [wait_ms]
    desk.let_pass(9000)
    assert create(desk, "t", 1) == (Code.NONE, 0)


def test_an_older_client_that_creates_too_many_partitions_is_only_throttled(desk: Desk) -> None:
    alter(desk, CLIENT, controller_mutation_rate=1.0)
    assert create(desk, "first", 11, version=5) == (Code.NONE, 0)
    assert create(desk, "second", 2, version=5) == (Code.NONE, 2000)
    assert desk.way.pauses_ms == [2000]


def test_added_and_deleted_partitions_count_too(desk: Desk) -> None:
    desk.create("t")
    alter(desk, CLIENT, controller_mutation_rate=1.0)
    more = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name="t", count=13, assignments=None)], timeout_ms=1000
    )
    assert desk.ask(more).results[0].error_code == Code.NONE
    more = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name="t", count=14, assignments=None)], timeout_ms=1000
    )
    answer = desk.ask(more)
    assert (answer.results[0].error_code, answer.throttle_time_ms) == (Code.THROTTLING_QUOTA_EXCEEDED, 1000)
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=1000)
    answer = desk.ask(request)
    assert (answer.responses[0].error_code, answer.throttle_time_ms) == (Code.THROTTLING_QUOTA_EXCEEDED, 1000)
    desk.let_pass(1000)
    assert desk.ask(request).responses[0].error_code == Code.NONE
    assert create(desk, "later", 1) == (Code.THROTTLING_QUOTA_EXCEEDED, 13_000)


def test_a_quota_of_another_client_has_no_effect(desk: Desk) -> None:
    desk.create("t")
    alter(desk, [("client-id", "other")], producer_byte_rate=1.0)
    assert produce(desk, batch()).throttle_time_ms == 0
    alter(desk, [("user", "anonymous")], producer_byte_rate=1.0)
    assert produce(desk, batch()).throttle_time_ms > 0


# -- credentials


def put(desk: Desk, *users: str, **fields: Any) -> dict[str, int]:
    given = {"mechanism": 1, "iterations": 4096, "salt": b"salt", "salted_password": b"p" * 32, **fields}
    upsertions = [ScramCredentialUpsertion(name=user, **given) for user in users]
    results = desk.ask(AlterUserScramCredentialsRequest(upsertions=upsertions)).results
    return {result.user: result.error_code for result in results}


def remove(desk: Desk, user: str, mechanism: int = 1) -> int:
    deletion = ScramCredentialDeletion(name=user, mechanism=mechanism)
    code: int = desk.ask(AlterUserScramCredentialsRequest(deletions=[deletion])).results[0].error_code
    return code


def known(desk: Desk, *users: str) -> dict[str, tuple[int, list[tuple[int, int]]]]:
    asked = [UserName(name=user) for user in users] or None
    found = desk.ask(DescribeUserScramCredentialsRequest(users=asked))
    assert found.error_code == Code.NONE
    return {
        result.user: (result.error_code, [(each.mechanism, each.iterations) for each in result.credential_infos])
        for result in found.results
    }


def test_credentials_are_stored_listed_and_removed(desk: Desk) -> None:
    assert put(desk, "a", "b") == {"a": Code.NONE, "b": Code.NONE}
    assert put(desk, "a", mechanism=2, iterations=5000) == {"a": Code.NONE}
    everything = {"a": (Code.NONE, [(1, 4096), (2, 5000)]), "b": (Code.NONE, [(1, 4096)])}
    assert known(desk) == everything
    desk = desk.restart()
    assert known(desk) == everything
    assert remove(desk, "a") == Code.NONE
    assert remove(desk, "a") == Code.RESOURCE_NOT_FOUND
    assert remove(desk, "b", 2) == Code.RESOURCE_NOT_FOUND
    assert known(desk, "a", "c") == {"a": (Code.NONE, [(2, 5000)]), "c": (Code.RESOURCE_NOT_FOUND, [])}
    assert known(desk, "b", "b") == {"b": (Code.DUPLICATE_RESOURCE, [])}


@pytest.mark.parametrize(
    ("user", "fields", "code"),
    [
        ("", {}, Code.UNACCEPTABLE_CREDENTIAL),
        ("a", {"iterations": 4095}, Code.UNACCEPTABLE_CREDENTIAL),
        ("a", {"iterations": 16385}, Code.UNACCEPTABLE_CREDENTIAL),
        ("a", {"salt": b""}, Code.UNACCEPTABLE_CREDENTIAL),
        ("a", {"mechanism": 9}, Code.UNSUPPORTED_SASL_MECHANISM),
    ],
)
def test_an_invalid_credential_is_refused(desk: Desk, user: str, fields: dict[str, Any], code: Code) -> None:
    assert put(desk, user, **fields) == {user: code}
    assert known(desk) == {}


def test_the_first_change_of_a_user_who_is_listed_twice_is_checked_first(desk: Desk) -> None:
    def alter_twice(user: str) -> list[int]:
        deletion = ScramCredentialDeletion(name=user, mechanism=1)
        upsertion = ScramCredentialUpsertion(
            name=user, mechanism=1, iterations=4096, salt=b"salt", salted_password=b"p" * 32
        )
        request = AlterUserScramCredentialsRequest(deletions=[deletion], upsertions=[upsertion])
        return [each.error_code for each in desk.ask(request).results]

    assert alter_twice("u") == [Code.RESOURCE_NOT_FOUND]
    assert alter_twice("") == [Code.UNACCEPTABLE_CREDENTIAL]
    put(desk, "u")
    assert alter_twice("u") == [Code.DUPLICATE_RESOURCE]


def test_a_repeated_user_is_refused_once(desk: Desk) -> None:
    assert put(desk, "a", "a") == {"a": Code.DUPLICATE_RESOURCE}
    assert known(desk) == {}


def test_a_credential_that_could_not_be_written_is_refused_and_undone(desk: Desk) -> None:
    desk.fail_writes()
    assert put(desk, "a") == {"a": Code.KAFKA_STORAGE_ERROR}
    assert known(desk) == {}
    assert alter(desk, CLIENT, producer_byte_rate=1.0) == Code.KAFKA_STORAGE_ERROR
    assert described(desk) == {}


def test_producers_are_throttled_while_memory_is_short_and_refused_only_at_the_limit() -> None:
    memory = MemoryFiles()
    desk = Desk(FaultyFiles(memory), limits={"memory_percent": 60, "throttle_percent": 80})
    desk.create("t")
    seen = []
    for used in (480, 540, 601, 540, 400):
        memory.taken = Memory(used, 1000)
        desk.let_pass(1000)
        answer = produce(desk, batch())
        seen.append((answer.throttle_time_ms, answer.responses[0].partition_responses[0].error_code))
    assert seen == [
        (0, Code.NONE),
        (500, Code.NONE),
        (1000, Code.KAFKA_STORAGE_ERROR),
        (500, Code.NONE),
        (0, Code.NONE),
    ]
    assert desk.way.pauses_ms == [500, 1000, 500]


def test_without_a_throttle_percent_producers_are_only_refused() -> None:
    memory = MemoryFiles()
    desk = Desk(FaultyFiles(memory), limits={"memory_percent": 60, "throttle_percent": 100})
    desk.create("t")
    memory.taken = Memory(600, 1000)
    desk.let_pass(1000)
    assert produce(desk, batch()).throttle_time_ms == 0
