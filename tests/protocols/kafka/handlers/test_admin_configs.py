"""Administration of settings: described, changed one by one or all at once, enforced, durable."""

from __future__ import annotations

from typing import Any

import pytest
from protocols.kafka.desk import NOW_MS, Desk

from trimq.errors import StartupError
from trimq.formats.kafka_batch.builder import from_records
from trimq.formats.kafka_batch.compression import Codec
from trimq.formats.kafka_batch.header import build_batch, check
from trimq.model import Record
from trimq.protocols.kafka.messages.configs import (
    AlterConfigsAlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    IncrementalAlterConfigsAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    ListConfigResourcesRequest,
)
from trimq.protocols.kafka.names.codes import Code

SET, DELETE, APPEND, SUBTRACT = range(4)
TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
HOUR_MS = 3_600_000


@pytest.fixture
def desk() -> Desk:
    return Desk()


def change(desk: Desk, *changes: tuple[str, int, str | None], kind: int = TOPIC, name: str = "t", **fields: Any) -> Any:
    configs = [
        IncrementalAlterConfigsAlterableConfig(name=key, config_operation=operation, value=value)
        for key, operation, value in changes
    ]
    resource = IncrementalAlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    return desk.ask(IncrementalAlterConfigsRequest(resources=[resource], **fields)).responses[0]


def replace(
    desk: Desk,
    *configs: tuple[str, str | None],
    version: int = 2,
    name: str = "t",
    kind: int = TOPIC,
    **fields: Any,
) -> Any:
    given = [AlterConfigsAlterableConfig(name=key, value=value) for key, value in configs]
    resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=given)
    return desk.ask(AlterConfigsRequest(resources=[resource], **fields), version).responses[0]


def describe(desk: Desk, kind: int, name: str, keys: list[str] | None = None, **fields: Any) -> Any:
    asked = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
    return desk.ask(DescribeConfigsRequest(resources=[asked], **fields)).results[0]


def batch(time: int = NOW_MS, key: bytes | None = b"k", codec: int = Codec.NONE, size: int = 10) -> bytearray:
    return from_records([Record(b"x" * size, key, timestamp_ms=time)], codec=codec)


# -- changes


def test_settings_of_kafkas_own_files_are_kept_and_shown(desk: Desk) -> None:
    given = {
        "file.delete.delay.ms": "12345",
        "follower.replication.throttled.replicas": "*",
        "leader.replication.throttled.replicas": "0:1,1:1",
        "local.retention.ms": "1000",
        "preallocate": "true",
        "segment.index.bytes": "4096",
        "segment.jitter.ms": "10",
    }
    assert desk.create("t", **{name.replace(".", "_"): value for name, value in given.items()}).error_code == 0
    assert desk.restart().configs("t") == given


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("file.delete.delay.ms", "-1"),
        ("segment.index.bytes", "3"),
        ("preallocate", "yes"),
        ("leader.replication.throttled.replicas", "0:1,*"),
        ("remote.storage.enable", "true"),
    ],
)
def test_settings_of_kafkas_own_files_are_validated(desk: Desk, name: str, value: str) -> None:
    desk.create("t")
    result = change(desk, (name, SET, value))
    assert result.error_code == Code.INVALID_CONFIG
    assert name in result.error_message


def test_settings_change_one_by_one(desk: Desk) -> None:
    desk.create("t", retention_ms="5")
    for changes, after in [
        ([("retention.ms", SET, "6"), ("segment.ms", SET, "7")], {"retention.ms": "6", "segment.ms": "7"}),
        ([("segment.ms", DELETE, None)], {"retention.ms": "6"}),
        ([("segment.ms", DELETE, None)], {"retention.ms": "6"}),
        ([("cleanup.policy", APPEND, "compact")], {"retention.ms": "6", "cleanup.policy": "delete,compact"}),
        ([("cleanup.policy", APPEND, "compact")], {"retention.ms": "6", "cleanup.policy": "delete,compact"}),
        ([("cleanup.policy", SUBTRACT, "delete,compact")], {"retention.ms": "6", "cleanup.policy": ""}),
        ([], {"retention.ms": "6", "cleanup.policy": ""}),
    ]:
        result = change(desk, *changes)
        assert (result.error_code, result.error_message) == (Code.NONE, None)
        assert desk.configs("t") == after


@pytest.mark.parametrize("version", range(3))
def test_settings_change_all_at_once(desk: Desk, version: int) -> None:
    desk.create("t", retention_ms="5", segment_ms="6")
    assert replace(desk, ("retention.ms", "7"), version=version).error_code == Code.NONE
    assert desk.configs("t") == {"retention.ms": "7"}
    assert replace(desk, version=version).error_code == Code.NONE
    assert desk.configs("t") == {}


REFUSED = [
    ([("no.such", SET, "1")], Code.INVALID_CONFIG),
    ([("retention.ms", SET, "x")], Code.INVALID_CONFIG),
    ([("retention.ms", APPEND, "5")], Code.INVALID_CONFIG),
    ([("remote.storage.enable", SET, "true")], Code.INVALID_CONFIG),
    ([("retention.ms", SET, "5"), ("segment.ms", SET, "0")], Code.INVALID_CONFIG),
    ([("retention.ms", SET, None)], Code.INVALID_REQUEST),
    ([("retention.ms", SET, "1"), ("retention.ms", SET, "2")], Code.INVALID_REQUEST),
    ([("retention.ms", 9, "1")], Code.INVALID_REQUEST),
]


@pytest.mark.parametrize(("changes", "code"), REFUSED)
def test_an_invalid_change_changes_nothing(desk: Desk, changes: list[Any], code: Code) -> None:
    desk.create("t", retention_ms="3")
    result = change(desk, *changes)
    assert result.error_code == code
    assert result.error_message
    assert desk.configs("t") == {"retention.ms": "3"}


def test_a_replacement_needs_values(desk: Desk) -> None:
    desk.create("t", retention_ms="3")
    assert replace(desk, ("retention.ms", None)).error_code == Code.INVALID_REQUEST
    assert replace(desk, ("retention.ms", "x")).error_code == Code.INVALID_CONFIG
    assert desk.configs("t") == {"retention.ms": "3"}


@pytest.mark.parametrize(
    ("kind", "name", "changes", "code"),
    [
        (TOPIC, "u", [("retention.ms", SET, "1")], Code.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "u", [("retention.ms", SET, "x")], Code.INVALID_CONFIG),
        (TOPIC, "u", [("retention.ms", APPEND, "1")], Code.INVALID_CONFIG),
        (TOPIC, "u", [("retention.ms", SET, None)], Code.INVALID_REQUEST),
        (TOPIC, "u/v", [("retention.ms", SET, "x")], Code.INVALID_TOPIC),
        (TOPIC, "", [("retention.ms", SET, "1")], Code.INVALID_REQUEST),
        (BROKER, "1", [("broker.id", SET, "5")], Code.INVALID_REQUEST),
        (BROKER, "", [("num.partitions", SET, "5")], Code.INVALID_REQUEST),
        (BROKER, "", [("no.such", SET, "5")], Code.INVALID_REQUEST),
        (BROKER, "", [("log.retention.ms", SET, "x")], Code.INVALID_REQUEST),
        (BROKER, "", [("log.retention.ms", SET, None)], Code.INVALID_REQUEST),
        (BROKER, "", [("log.retention.ms", APPEND, "5")], Code.INVALID_CONFIG),
        (BROKER, "", [("log.retention.ms", 9, "5")], Code.INVALID_REQUEST),
        (BROKER, "", [("log.retention.ms", SET, "5"), ("log.retention.ms", SET, "5")], Code.INVALID_REQUEST),
        (BROKER, "", [("log.cleanup.policy", SET, "x")], Code.INVALID_REQUEST),
        (BROKER, "", [("log.message.timestamp.type", SET, "x")], Code.INVALID_REQUEST),
        (BROKER, "1", [("leader.replication.throttled.rate", SET, "-1")], Code.INVALID_REQUEST),
        (BROKER, "1", [("min.insync.replicas", SET, "1")], Code.INVALID_CONFIG),
        (BROKER, "", [("min.insync.replicas", SET, "2")], Code.NONE),
        (BROKER, "", [("min.insync.replicas", DELETE, None)], Code.INVALID_CONFIG),
        (BROKER, "1", [("follower.replication.throttled.rate", DELETE, None)], Code.NONE),
        (BROKER, "", [("no.such", DELETE, None)], Code.NONE),
        (BROKER, "7", [], Code.INVALID_REQUEST),
        (BROKER, "1", [], Code.NONE),
        (LOGGER, "1", [("root", SET, "DEBUG")], Code.INVALID_REQUEST),
        (LOGGER, "1", [("no.such", SET, "DEBUG")], Code.INVALID_CONFIG),
        (LOGGER, "1", [("no.such", APPEND, "DEBUG")], Code.INVALID_REQUEST),
        (LOGGER, "", [], Code.INVALID_REQUEST),
        (TOPIC, "u", [("no.such", DELETE, None)], Code.UNKNOWN_TOPIC_OR_PARTITION),
        (GROUP, "g", [("consumer.session.timeout.ms", APPEND, "5")], Code.INVALID_CONFIG),
        (GROUP, "g", [("consumer.session.timeout.ms", 9, "5")], Code.INVALID_REQUEST),
        (GROUP, "g", [("consumer.session.timeout.ms", SET, "5")], Code.INVALID_CONFIG),
        (GROUP, "g", [("consumer.session.timeout.ms", SET, "5")] * 2, Code.INVALID_REQUEST),
        (GROUP, "", [("consumer.session.timeout.ms", SET, "45000")], Code.INVALID_REQUEST),
        (METRICS, "m", [("interval.ms", SET, "5")], Code.INVALID_CONFIG),
        (99, "x", [], Code.INVALID_REQUEST),
    ],
)
def test_only_topics_have_mutable_settings(desk: Desk, kind: int, name: str, changes: list[Any], code: Code) -> None:
    assert change(desk, *changes, kind=kind, name=name).error_code == code


@pytest.mark.parametrize("configs", [(), (("root", "DEBUG"),)], ids=["nothing", "a level"])
def test_log_levels_are_not_replaced(desk: Desk, configs: tuple[tuple[str, str], ...]) -> None:
    assert replace(desk, *configs, kind=LOGGER, name="1").error_code == Code.INVALID_REQUEST


def test_a_list_is_split_as_java_splits_it(desk: Desk) -> None:
    desk.create("t")
    assert change(desk, ("cleanup.policy", APPEND, "compact,,")).error_code == Code.NONE
    assert desk.configs("t") == {"cleanup.policy": "delete,compact"}


def test_an_unknown_operation_refuses_all_topics_of_the_request(desk: Desk) -> None:
    desk.create("t")
    desk.create("u")
    resources = [
        IncrementalAlterConfigsResource(
            resource_type=TOPIC,
            resource_name=name,
            configs=[IncrementalAlterConfigsAlterableConfig(name="retention.ms", config_operation=kind, value="5")],
        )
        for name, kind in (("t", SET), ("u", 9))
    ]
    answers = desk.ask(IncrementalAlterConfigsRequest(resources=resources)).responses
    assert [each.error_code for each in answers] == [Code.INVALID_REQUEST] * 2
    assert desk.configs("t") == {}


def source_and_value(desk: Desk, kind: int, name: str, key: str) -> tuple[int, str]:
    (found,) = describe(desk, kind, name, [key]).configs
    return found.config_source, found.value


def test_defaults_of_topics_change_live_for_one_broker_and_for_all(desk: Desk) -> None:
    desk.create("t")
    desk.create("own", max_message_bytes="3000")
    assert change(desk, ("message.max.bytes", SET, "500"), kind=BROKER, name="").error_code == Code.NONE
    assert desk.produce("t", batch(size=1000)).error_code == Code.MESSAGE_TOO_LARGE
    assert desk.produce("own", batch(size=1000)).error_code == Code.NONE
    assert source_and_value(desk, TOPIC, "t", "max.message.bytes") == (3, "500")
    assert source_and_value(desk, BROKER, "", "message.max.bytes") == (3, "500")
    assert change(desk, ("message.max.bytes", SET, "2000"), kind=BROKER, name="1").error_code == Code.NONE
    assert source_and_value(desk, BROKER, "1", "message.max.bytes") == (2, "2000")
    desk = desk.restart()
    assert desk.produce("t", batch(size=1000)).error_code == Code.NONE
    assert source_and_value(desk, TOPIC, "t", "max.message.bytes") == (2, "2000")
    assert change(desk, ("message.max.bytes", DELETE, None), kind=BROKER, name="1").error_code == Code.NONE
    assert desk.produce("t", batch(size=1000)).error_code == Code.MESSAGE_TOO_LARGE
    desk.create("later")
    assert desk.produce("later", batch(size=1000)).error_code == Code.MESSAGE_TOO_LARGE


def test_a_list_of_the_broker_can_be_appended_to(desk: Desk) -> None:
    desk.create("t")
    assert change(desk, ("log.cleanup.policy", APPEND, "compact"), kind=BROKER, name="").error_code == Code.NONE
    assert source_and_value(desk, TOPIC, "t", "cleanup.policy") == (3, "delete,compact")
    assert desk.produce("t", batch(key=None)).error_code == Code.INVALID_RECORD


def test_a_change_of_the_broker_can_be_validated_only(desk: Desk) -> None:
    answer = change(desk, ("log.retention.ms", SET, "5"), kind=BROKER, name="", validate_only=True)
    assert answer.error_code == Code.NONE
    assert [config.name for config in describe(desk, BROKER, "").configs] == ["min.insync.replicas"]
    answer = change(desk, ("log.retention.ms", SET, "x"), kind=BROKER, name="", validate_only=True)
    assert answer.error_code == Code.INVALID_REQUEST


def test_the_interval_of_compaction_changes_live(desk: Desk) -> None:
    assert change(desk, ("log.cleaner.backoff.ms", SET, "5000"), kind=BROKER, name="1").error_code == Code.NONE
    assert desk.core.maintenance._compaction.interval_ms == 5000
    assert change(desk, ("log.cleaner.backoff.ms", DELETE, None), kind=BROKER, name="1").error_code == Code.NONE
    assert desk.core.maintenance._compaction.interval_ms == 15_000


def test_a_group_setting_names_its_synonyms(desk: Desk) -> None:
    change(desk, ("consumer.session.timeout.ms", SET, "50000"), kind=GROUP, name="g")
    (found,) = describe(desk, GROUP, "g", ["consumer.session.timeout.ms"], include_synonyms=True).configs
    assert [(each.name, each.value, each.source) for each in found.synonyms] == [
        ("consumer.session.timeout.ms", "50000", 8),
        ("group.consumer.session.timeout.ms", "45000", 5),
    ]


def test_a_repeated_resource_is_refused_twice(desk: Desk) -> None:
    desk.create("t")
    configs = [IncrementalAlterConfigsAlterableConfig(name="retention.ms", value="1")]
    resource = IncrementalAlterConfigsResource(resource_type=TOPIC, resource_name="t", configs=configs)
    results = desk.ask(IncrementalAlterConfigsRequest(resources=[resource, resource])).responses
    assert [result.error_code for result in results] == [Code.INVALID_REQUEST] * 2
    assert desk.configs("t") == {}


def test_a_validated_change_is_not_applied(desk: Desk) -> None:
    desk.create("t")
    assert change(desk, ("retention.ms", SET, "5"), validate_only=True).error_code == Code.NONE
    assert change(desk, ("retention.ms", SET, "x"), validate_only=True).error_code == Code.INVALID_CONFIG
    assert replace(desk, ("retention.ms", "5"), validate_only=True).error_code == Code.NONE
    assert desk.configs("t") == {}


def test_a_change_that_could_not_be_written_is_refused_and_undone(desk: Desk) -> None:
    desk.create("t", max_message_bytes="300")
    desk.fail_writes()
    assert change(desk, ("max.message.bytes", SET, "10")).error_code == Code.KAFKA_STORAGE_ERROR
    assert desk.configs("t") == {"max.message.bytes": "300"}


def test_with_async_a_topic_cannot_have_every_record_synced() -> None:
    desk = Desk(flush="async")
    refused = desk.create("t", flush_messages="1")
    assert refused.error_code == Code.INVALID_CONFIG
    assert "flush.messages" in refused.error_message
    assert desk.create("t", flush_ms="5000").error_code == Code.NONE


def test_a_broker_that_cannot_meet_the_flush_setting_of_a_topic_does_not_start(desk: Desk) -> None:
    assert desk.create("t", flush_messages="1").error_code == Code.NONE
    desk.core.close()
    desk.runner.settle()
    with pytest.raises(StartupError, match="topic t "):
        Desk(desk.files, flush="async")
    assert Desk(desk.files).configs("t") == {"flush.messages": "1"}


# -- descriptions


def test_keys_filter_the_description(desk: Desk) -> None:
    desk.create("t")
    (found,) = describe(desk, TOPIC, "t", ["retention.ms", "no.such"]).configs
    assert (found.name, found.documentation, found.synonyms) == ("retention.ms", None, [])
    everything = describe(desk, TOPIC, "t", [], include_synonyms=True, include_documentation=True).configs
    assert len(everything) == 33
    assert all(config.documentation for config in everything)
    assert not any(config.read_only or config.is_sensitive for config in everything)


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (TOPIC, "u", Code.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "a b", Code.INVALID_TOPIC),
        (BROKER, "1", Code.NONE),
        (BROKER, "", Code.NONE),
        (BROKER, "7", Code.INVALID_REQUEST),
        (BROKER, "x", Code.INVALID_REQUEST),
        (LOGGER, "1", Code.NONE),
        (METRICS, "m", Code.NONE),
        (GROUP, "g", Code.NONE),
        (GROUP, "", Code.INVALID_REQUEST),
        (METRICS, "", Code.INVALID_REQUEST),
        (LOGGER, "", Code.INVALID_REQUEST),
        (99, "x", Code.INVALID_REQUEST),
    ],
)
def test_a_resource_without_settings_is_refused(desk: Desk, kind: int, name: str, code: Code) -> None:
    found = describe(desk, kind, name)
    assert found.error_code == code
    assert bool(found.configs) == ((kind, name) in ((BROKER, "1"), (BROKER, ""), (GROUP, "g")))


def test_a_resource_is_described_as_often_as_it_is_listed_up_to_ten_times(desk: Desk) -> None:
    desk.create("t")
    asked = DescribeConfigsResource(resource_type=TOPIC, resource_name="t", configuration_keys=None)
    results = desk.ask(DescribeConfigsRequest(resources=[asked] * 1000)).results
    assert [bool(each.configs) for each in results] == [True] * 10 + [False] * 990
    assert {each.error_code for each in results[10:]} == {Code.INVALID_REQUEST}


def test_an_unknown_type_refuses_the_whole_description(desk: Desk) -> None:
    desk.create("t")
    asked = [DescribeConfigsResource(resource_type=kind, resource_name="t") for kind in (TOPIC, 99)]
    results = desk.ask(DescribeConfigsRequest(resources=asked)).results
    assert [each.error_code for each in results] == [Code.INVALID_REQUEST] * 2


def test_a_description_without_error_has_an_empty_error_message(desk: Desk) -> None:
    desk.create("t")
    assert describe(desk, TOPIC, "t").error_message == ""


def test_only_an_administrator_sees_the_static_broker_settings(desk: Desk) -> None:
    desk.core.broker._access.define_user("root", "secret", is_administrator=True)
    assert describe(desk, BROKER, "1").error_code == Code.CLUSTER_AUTHORIZATION_FAILED


def test_resources_are_listed_by_kind(desk: Desk) -> None:
    desk.create("t")

    def listed(*kinds: int) -> set[tuple[int, str]]:
        found = desk.ask(ListConfigResourcesRequest(resource_types=list(kinds)))
        assert found.error_code == Code.NONE
        return {(each.resource_type, each.resource_name) for each in found.config_resources}

    assert listed(TOPIC) == {(TOPIC, "t")}
    assert listed() == {(TOPIC, "t"), (BROKER, "1"), (LOGGER, "1")}
    assert listed(GROUP, METRICS) == set()
    assert desk.ask(ListConfigResourcesRequest(resource_types=[99])).error_code == Code.UNSUPPORTED_VERSION
    assert desk.ask(ListConfigResourcesRequest(), 0).config_resources == []


# -- enforcement


def test_sizes_are_enforced_and_change_at_once(desk: Desk) -> None:
    desk.create("t", max_message_bytes="200")
    assert desk.produce("t", batch(size=50)).error_code == Code.NONE
    assert desk.produce("t", batch(size=500)).error_code == Code.MESSAGE_TOO_LARGE
    change(desk, ("max.message.bytes", SET, "1000"))
    assert desk.produce("t", batch(size=500)).error_code == Code.NONE
    change(desk, ("max.message.bytes", SET, "100"))
    assert desk.produce("t", batch(size=50)).error_code == Code.MESSAGE_TOO_LARGE


def test_a_batch_that_grows_under_the_topics_codec_must_still_fit(desk: Desk) -> None:
    desk.create("t", max_message_bytes="400", compression_type="uncompressed")
    sent = batch(codec=Codec.GZIP, size=5000)
    assert len(sent) < 400
    assert desk.produce("t", sent).error_code == Code.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("version", [7, 9])
def test_a_record_without_a_key_is_reported_where_the_version_can(desk: Desk, version: int) -> None:
    desk.create("t", cleanup_policy="compact")
    answer = desk.produce("t", batch(key=None), version=version)
    assert answer.error_code == Code.INVALID_RECORD
    assert [error.batch_index for error in answer.record_errors] == ([0] if version >= 8 else [])
    change(desk, ("cleanup.policy", SET, "delete"))
    assert desk.produce("t", batch(key=None)).error_code == Code.NONE


def test_a_record_with_an_invalid_timestamp_is_reported(desk: Desk) -> None:
    desk.create("t")
    answer = desk.produce("t", batch(NOW_MS + 2 * HOUR_MS))
    assert answer.error_code == Code.INVALID_TIMESTAMP
    assert [error.batch_index for error in answer.record_errors] == [0]
    assert answer.base_offset == -1
    change(desk, ("message.timestamp.after.max.ms", SET, str(3 * HOUR_MS)))
    assert desk.produce("t", batch(NOW_MS + 2 * HOUR_MS)).error_code == Code.NONE


def test_append_time_is_returned_stored_and_found(desk: Desk) -> None:
    desk.create("t", message_timestamp_type="LogAppendTime")
    answer = desk.produce("t", batch(5))
    assert answer.log_append_time_ms == NOW_MS
    stored = bytes(desk.fetch("t").responses[0].partitions[0].records)
    header = check(stored)
    assert header.is_log_append_time
    assert header.max_timestamp_ms == NOW_MS
    change(desk, ("message.timestamp.type", SET, "CreateTime"))
    assert desk.produce("t", batch(5)).log_append_time_ms == -1


def test_only_the_header_is_checked_unless_a_setting_needs_the_records() -> None:
    desk = Desk(kafka={"record_validation": "header"})
    desk.create("t")
    desk.create("keyed", cleanup_policy="compact")
    broken = build_batch(check(batch()), b"\xff\xff\xff")
    assert desk.produce("t", bytes(broken)).error_code == Code.NONE
    assert desk.produce("keyed", bytes(broken)).error_code == Code.INVALID_RECORD
    assert desk.produce("t", batch(NOW_MS + 2 * HOUR_MS)).error_code == Code.INVALID_TIMESTAMP
    full = Desk()
    full.create("t")
    assert full.produce("t", bytes(broken)).error_code == Code.INVALID_RECORD


def test_records_are_stored_with_the_topics_codec(desk: Desk) -> None:
    desk.create("t", compression_type="zstd")
    desk.produce("t", batch(codec=Codec.GZIP, size=500))
    stored = bytes(desk.fetch("t").responses[0].partitions[0].records)
    assert check(stored).codec == Codec.ZSTD


def test_a_repeated_batch_gets_the_timestamp_of_the_first(desk: Desk) -> None:
    desk.create("t")
    sent = from_records([Record(b"x", timestamp_ms=NOW_MS - 5)], producer_id=7, producer_epoch=0, base_sequence=0)
    first, again = desk.produce("t", bytes(sent)), desk.produce("t", bytes(sent))
    assert (first.base_offset, first.log_append_time_ms) == (0, -1)
    assert (again.base_offset, again.log_append_time_ms) == (0, NOW_MS - 5)


def test_zstd_needs_a_version_that_knows_it(desk: Desk) -> None:
    desk.create("t")
    assert desk.produce("t", batch(codec=Codec.ZSTD), version=6).error_code == Code.UNSUPPORTED_COMPRESSION_TYPE
    assert desk.produce("t", batch(codec=Codec.ZSTD), version=7).error_code == Code.NONE


def test_clients_cannot_write_to_internal_topics(desk: Desk) -> None:
    assert desk.produce("__consumer_offsets", batch()).error_code == Code.INVALID_TOPIC


def test_settings_and_their_effect_survive_a_restart(desk: Desk) -> None:
    desk.create("t", cleanup_policy="compact")
    change(desk, ("max.message.bytes", SET, "200"))
    desk = desk.restart()
    assert desk.configs("t") == {"cleanup.policy": "compact", "max.message.bytes": "200"}
    assert desk.produce("t", batch(key=None)).error_code == Code.INVALID_RECORD
    assert desk.produce("t", batch(size=500)).error_code == Code.MESSAGE_TOO_LARGE
