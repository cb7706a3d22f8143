"""Kafka's names for topic and broker settings."""

from __future__ import annotations

import pytest

from trimq.config import Address as Bound
from trimq.config import Kafka, Settings, Storage
from trimq.core.metadata.cluster import Address, Node
from trimq.core.partitions.topic_settings import check_topic_settings, log_settings, message_limit, stream_rules
from trimq.errors import InvalidSetting
from trimq.protocols.kafka.names.broker_configs import describe_broker
from trimq.protocols.kafka.names.codes import Code, KafkaRefusal
from trimq.protocols.kafka.names.topic_configs import (
    CONFIGS,
    BrokerLevels,
    ConfigSource,
    current_value,
    describe,
    to_configs,
    to_settings,
    with_kafka_name,
)

BROKER = Settings()
ENFORCED = CONFIGS
FIXED = [config for config in CONFIGS if config.fixed]


@pytest.mark.parametrize("config", ENFORCED, ids=lambda config: config.name)
def test_a_default_is_the_value_in_effect_without_the_setting(config) -> None:
    settings = to_settings({config.name: config.default})
    check_topic_settings(settings, BROKER)
    assert log_settings(settings, BROKER) == log_settings({}, BROKER)
    assert message_limit(settings, BROKER) == message_limit({}, BROKER)
    assert stream_rules(settings)._replace(has_timestamp_window=False) == stream_rules({})
    assert to_configs(settings) == {config.name: config.default}


@pytest.mark.parametrize("config", FIXED, ids=lambda config: config.name)
def test_an_unenforced_setting_accepts_only_its_default(config) -> None:
    assert to_settings({config.name: config.default}) == {config.setting: config.default}
    other = {"false": "true", "": "x", "-2": "5"}.get(config.default, "12345")
    with pytest.raises(KafkaRefusal) as refused:
        to_settings({config.name: other})
    assert refused.value.code == Code.INVALID_CONFIG
    assert str(refused.value).startswith(f"{config.name}: ")
    assert config.fixed in str(refused.value)


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("retention.ms", " +5 ", "5"),
        ("retention.ms", "007", "7"),
        ("cleanup.policy", " compact , delete ", "compact,delete"),
        ("cleanup.policy", "", ""),
        ("min.cleanable.dirty.ratio", "1", "1.0"),
        ("unclean.leader.election.enable", "TRUE", "true"),
        ("message.timestamp.type", "LogAppendTime", "LogAppendTime"),
        ("compression.type", "uncompressed", "uncompressed"),
    ],
)
def test_a_value_is_formatted_as_kafka_prints_it(name: str, text: str, value: str) -> None:
    settings = to_settings({name: text})
    check_topic_settings(settings, BROKER)
    assert to_configs(settings) == {name: value}
    assert current_value(name, settings, BrokerLevels(BROKER)) == value


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("no.such", "1"),
        ("retention_ms", "1"),
        ("retention.ms", "1_000"),
        ("retention.ms", "9" * 5000),
        ("message.timestamp.type", "created"),
        ("compression.type", "none"),
        ("min.cleanable.dirty.ratio", "x"),
        ("unclean.leader.election.enable", "yes"),
    ],
)
def test_an_invalid_value_is_refused_with_kafkas_name(name: str, text: str) -> None:
    with pytest.raises((InvalidSetting, KafkaRefusal)) as refused:
        check_topic_settings(to_settings({name: text}), BROKER)
    refusal = refused.value
    assert str(with_kafka_name(refusal) if isinstance(refusal, InvalidSetting) else refusal).startswith(f"{name}: ")


def test_a_value_has_the_topic_the_broker_or_the_default_as_source() -> None:
    broker = BrokerLevels(Settings(storage=Storage(segment_bytes=5_000_000)))
    found = {each.name: each for each in describe({"retention_ms": "5"}, broker)}
    assert (found["retention.ms"].value, found["retention.ms"].source) == ("5", ConfigSource.TOPIC)
    assert (found["segment.bytes"].value, found["segment.bytes"].source) == ("5000000", ConfigSource.BROKER)
    assert (found["segment.ms"].value, found["segment.ms"].source) == ("604800000", ConfigSource.DEFAULT)
    own = {each.name: each for each in describe({"segment_bytes": "6000000"}, broker)}["segment.bytes"]
    assert [(each.name, each.value, each.source) for each in own.synonyms] == [
        ("segment.bytes", "6000000", ConfigSource.TOPIC),
        ("log.segment.bytes", "5000000", ConfigSource.BROKER),
        ("log.segment.bytes", "1073741824", ConfigSource.DEFAULT),
    ]


def test_a_value_that_was_changed_live_comes_before_that_of_the_file() -> None:
    file = Settings(storage=Storage(segment_bytes=5_000_000))
    levels = BrokerLevels(file, {"segment_bytes": "6000000", "record_time": "appended"}, {"segment_bytes": "7000000"})
    found = {each.name: each for each in describe({}, levels)}
    assert [(each.value, each.source) for each in found["segment.bytes"].synonyms] == [
        ("7000000", ConfigSource.DYNAMIC_BROKER),
        ("6000000", ConfigSource.DYNAMIC_DEFAULT_BROKER),
        ("5000000", ConfigSource.BROKER),
        ("1073741824", ConfigSource.DEFAULT),
    ]
    assert found["message.timestamp.type"].value == "LogAppendTime"
    least = found["min.insync.replicas"]  # Kafka sets it for the cluster when the cluster is made
    assert (least.value, least.source) == ("1", ConfigSource.DYNAMIC_DEFAULT_BROKER)


def test_every_setting_explains_itself() -> None:
    assert [config.name for config in CONFIGS] == sorted(config.name for config in CONFIGS)
    assert all(config.documentation.endswith(".") for config in CONFIGS)


def test_the_broker_describes_its_settings_with_kafkas_names() -> None:
    settings = Settings(kafka=Kafka(listen=Bound("::1", 5), num_partitions=3), storage=Storage(retention_ms=7))
    me = Node(9, {"kafka": Address("example.org", 1234)})
    found = {each.name: each for each in describe_broker(BrokerLevels(settings), me)}
    assert found["advertised.listeners"].value == "PLAINTEXT://example.org:1234"
    assert found["listeners"].value == "PLAINTEXT://[::1]:5"
    assert found["num.partitions"].value == "3"
    assert found["num.partitions"].source is ConfigSource.BROKER
    assert found["log.retention.ms"].value == "7"
    assert found["log.segment.bytes"].source is ConfigSource.DEFAULT
    assert found["node.id"].value == str(settings.node_id)
    assert all(each.documentation for each in found.values())
    assert not found["log.segment.bytes"].is_read_only
    assert found["num.partitions"].is_read_only
    assert [each.value for each in found.values() if each.is_sensitive] == [None] * 3
