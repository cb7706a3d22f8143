"""Kafka's names for the settings of a topic, and what they are in ours: translation both ways, defaults as a genuine
Kafka reports them, and which of them cannot be changed here."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from enum import IntEnum
from typing import NamedTuple

from trimq.config import Settings
from trimq.core.partitions.topic_settings import TopicSettings
from trimq.errors import InvalidSetting
from trimq.protocols.kafka.names.codes import Code, KafkaRefusal

_NUMBER = re.compile(r"[+-]?\d{1,19}")
_NO_LIMIT = str(2**63 - 1)


class ConfigType(IntEnum):
    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7
    PASSWORD = 9


class ConfigSource(IntEnum):
    """Who set a value."""

    TOPIC = 1
    BROKER = 4
    DEFAULT = 5
    GROUP = 8


class Synonym(NamedTuple):
    name: str
    value: str
    source: ConfigSource


class DescribedConfig(NamedTuple):
    """One setting as DescribeConfigs tells it."""

    name: str
    value: str | None
    kind: ConfigType
    source: ConfigSource
    documentation: str
    synonyms: tuple[Synonym, ...] = ()
    is_read_only: bool = False
    is_sensitive: bool = False


class Config(NamedTuple):
    """`setting`: the neutral name; "" if there is none, and only the default is taken, because of `fixed`. `synonym`:
    what Kafka calls the broker's value of it, "" where it lists none. `words`: theirs to ours, where values are
    translated."""

    name: str
    kind: ConfigType
    default: str
    setting: str
    synonym: str
    documentation: str
    words: Mapping[str, str] = {}
    fixed: str = ""


_TIMES = {"CreateTime": "created", "LogAppendTime": "appended"}
_CODECS = {"uncompressed": "none"} | {word: word for word in ("zstd", "lz4", "snappy", "gzip", "producer")}
_NOT_TIERED = "no tiered storage is offered"
_ONE_REPLICA = "a partition has one replica, nothing is replicated"

CONFIGS = (
    Config("cleanup.policy", ConfigType.LIST, "delete", "cleanup", "log.cleanup.policy",
           "delete: the oldest segments go by age and size. compact: the last record of each key stays."),
    Config("compression.gzip.level", ConfigType.INT, "-1", "gzip_level", "compression.gzip.level",
           "How hard gzip tries when compression.type is gzip; -1 leaves it to gzip."),
    Config("compression.lz4.level", ConfigType.INT, "9", "lz4_level", "compression.lz4.level",
           "How hard lz4 tries when compression.type is lz4."),
    Config("compression.type", ConfigType.STRING, "producer", "compression", "compression.type",
           "The codec under which batches are kept; producer: as they were sent.", _CODECS),
    Config("compression.zstd.level", ConfigType.INT, "3", "zstd_level", "compression.zstd.level",
           "How hard zstd tries when compression.type is zstd."),
    Config("delete.retention.ms", ConfigType.LONG, "86400000", "delete_retention_ms", "log.cleaner.delete.retention.ms",
           "How long a compacted topic keeps the tombstone of a key."),
    Config("file.delete.delay.ms", ConfigType.LONG, "60000", "", "log.segment.delete.delay.ms",
           "Not used: a segment's files go at once, and readers keep what they hold.",
           fixed="a segment's files go at once, readers keep what they hold"),
    Config("flush.messages", ConfigType.LONG, _NO_LIMIT, "sync_every_records", "log.flush.interval.messages",
           "After how many records a partition is synced. With flush = sync each is, before it is acknowledged."),
    Config("flush.ms", ConfigType.LONG, _NO_LIMIT, "sync_every_ms", "",
           "After how long a record is synced. With flush = sync it is before it is acknowledged."),
    Config("follower.replication.throttled.replicas", ConfigType.LIST, "", "", "", "Not used: nothing is replicated.",
           fixed=_ONE_REPLICA),
    Config("index.interval.bytes", ConfigType.INT, "4096", "index_interval_bytes", "log.index.interval.bytes",
           "How many bytes of a new segment lie between two entries of its indexes."),
    Config("leader.replication.throttled.replicas", ConfigType.LIST, "", "", "", "Not used: nothing is replicated.",
           fixed=_ONE_REPLICA),
    Config("local.retention.bytes", ConfigType.LONG, "-2", "", "log.local.retention.bytes",
           "Not used: all segments are local.", fixed=_NOT_TIERED),
    Config("local.retention.ms", ConfigType.LONG, "-2", "", "log.local.retention.ms",
           "Not used: all segments are local.", fixed=_NOT_TIERED),
    Config("max.compaction.lag.ms", ConfigType.LONG, _NO_LIMIT, "max_compaction_lag_ms",
           "log.cleaner.max.compaction.lag.ms", "After how long a record takes part in compaction at the latest."),
    Config("max.message.bytes", ConfigType.INT, "1048588", "message_bytes", "message.max.bytes",
           "The largest batch that is taken, as it is compressed."),
    Config("message.timestamp.after.max.ms", ConfigType.LONG, "3600000", "record_lead_ms",
           "log.message.timestamp.after.max.ms", "How far a record's time may be ahead of the broker's."),
    Config("message.timestamp.before.max.ms", ConfigType.LONG, _NO_LIMIT, "record_age_ms",
           "log.message.timestamp.before.max.ms", "How far a record's time may be behind the broker's."),
    Config("message.timestamp.type", ConfigType.STRING, "CreateTime", "record_time", "log.message.timestamp.type",
           "Whose time records bear: the producer's, or the broker's when it appended them.", _TIMES),
    Config("min.cleanable.dirty.ratio", ConfigType.DOUBLE, "0.5", "min_cleanable_dirty_ratio",
           "log.cleaner.min.cleanable.ratio", "Which share of a log must be new before it is compacted again."),
    Config("min.compaction.lag.ms", ConfigType.LONG, "0", "min_compaction_lag_ms", "log.cleaner.min.compaction.lag.ms",
           "How long a record stays as it is before it takes part in compaction."),
    Config("min.insync.replicas", ConfigType.INT, "1", "min_synced_replicas", "min.insync.replicas",
           "How many replicas must have a record, at most all there are, before acks=all is answered."),
    Config("preallocate", ConfigType.BOOLEAN, "false", "", "log.preallocate",
           "Not used: segments grow as they are written.", fixed="segments grow as they are written"),
    Config("remote.log.copy.disable", ConfigType.BOOLEAN, "false", "", "", "Not used: all segments are local.",
           fixed=_NOT_TIERED),
    Config("remote.log.delete.on.disable", ConfigType.BOOLEAN, "false", "", "", "Not used: all segments are local.",
           fixed=_NOT_TIERED),
    Config("remote.storage.enable", ConfigType.BOOLEAN, "false", "", "", "Not used: all segments are local.",
           fixed=_NOT_TIERED),
    Config("retention.bytes", ConfigType.LONG, "-1", "retention_bytes", "log.retention.bytes",
           "How large a partition may grow before its oldest segments go; -1: any size."),
    Config("retention.ms", ConfigType.LONG, "604800000", "retention_ms", "",
           "How long a closed segment is kept after its last record; -1: for ever."),
    Config("segment.bytes", ConfigType.INT, "1073741824", "segment_bytes", "log.segment.bytes",
           "A segment that would grow past this size is closed."),
    Config("segment.index.bytes", ConfigType.INT, "10485760", "", "log.index.size.max.bytes",
           "Not used: an index grows with its segment, which never fills this much.",
           fixed="an index is as large as its segment needs it"),
    Config("segment.jitter.ms", ConfigType.LONG, "0", "", "", "Not used: segments are closed when segment.ms says so.",
           fixed="segments are closed when segment.ms says so"),
    Config("segment.ms", ConfigType.LONG, "604800000", "segment_ms", "",
           "A segment whose first record is older than this is closed."),
    Config("unclean.leader.election.enable", ConfigType.BOOLEAN, "false", "unclean_election",
           "unclean.leader.election.enable",
           "Whether a replica that is behind may lead; with one replica there is none."),
)  # fmt: skip
_BY_NAME = {config.name: config for config in CONFIGS}
_BY_SETTING = {config.setting: config for config in CONFIGS if config.setting}

# What the broker's own settings may change for all topics.
_OF_THE_BROKER = frozenset(
    ("segment_bytes", "segment_ms", "index_interval_bytes", "retention_ms", "retention_bytes", "message_bytes")
)


def invalid_config(name: str, reason: str) -> KafkaRefusal:
    """A no to a setting under Kafka's name; the core says no under ours."""
    return KafkaRefusal(Code.INVALID_CONFIG, f"{name}: {reason}")


def find(name: str) -> Config:
    config = _BY_NAME.get(name)
    if config is None:
        raise invalid_config(name, "there is no topic setting of this name")
    return config


def is_list(name: str) -> bool:
    return find(name).kind is ConfigType.LIST


def canonical(config: Config, text: str) -> str:
    """The value as Kafka prints it. What is no such value is refused, here or by the core."""
    text = text.strip()
    if config.kind in (ConfigType.INT, ConfigType.LONG):
        return str(int(text)) if _NUMBER.fullmatch(text) else text
    if config.kind is ConfigType.DOUBLE:
        try:
            return str(float(text))
        except ValueError:
            raise invalid_config(config.name, f"{text[:40]!r} is not a number") from None
    if config.kind is ConfigType.BOOLEAN:
        if text.lower() not in ("true", "false"):
            raise invalid_config(config.name, f"{text[:40]!r} is neither true nor false")
        return text.lower()
    if config.kind is ConfigType.LIST:
        return ",".join(word.strip() for word in text.split(",")) if text else ""
    return text


def to_settings(configs: Mapping[str, str]) -> dict[str, str]:
    """In our words. Failure: a setting is unknown, has no such value, or is not to be changed here."""
    settings = {}
    for name, text in configs.items():
        config = find(name)
        value = canonical(config, text)
        if not config.setting:
            if value != config.default:
                raise invalid_config(name, f"it cannot be changed here: {config.fixed}")
            continue
        if config.words and value not in config.words:
            raise invalid_config(name, f"{value[:40]!r} is none of {', '.join(config.words)}")
        settings[config.setting] = config.words.get(value, value)
    return settings


def settings_unknown_to_kafka(settings: TopicSettings) -> dict[str, str]:
    """What was set for the topic that Kafka has no words for: its clients neither see nor change it."""
    return {setting: value for setting, value in settings.items() if setting not in _BY_SETTING}


def to_configs(settings: TopicSettings) -> dict[str, str]:
    """In Kafka's words: what was set for the topic itself."""
    configs = {}
    for setting, value in settings.items():
        config = _BY_SETTING.get(setting)
        if config is None:
            continue
        theirs = {word: name for name, word in config.words.items()}
        configs[config.name] = theirs.get(value, value)
    return configs


def with_kafka_name(refusal: InvalidSetting) -> InvalidSetting:
    """The core's no to a setting, under the name by which the client knows it."""
    config = _BY_SETTING.get(refusal.name)
    return refusal if config is None else InvalidSetting(config.name, refusal.reason)


def describe(settings: TopicSettings, broker: Settings) -> Iterator[DescribedConfig]:
    """Every setting of a topic, by name."""
    own = to_configs(settings)
    for config in CONFIGS:
        default, source = _default(config, broker)
        synonyms: tuple[Synonym, ...] = ()
        if config.synonym:
            synonyms = (Synonym(config.synonym, default, source),)
        value = default
        if config.name in own:
            value, source = own[config.name], ConfigSource.TOPIC
            synonyms = (Synonym(config.name, value, source), *synonyms)
        yield DescribedConfig(config.name, value, config.kind, source, config.documentation, synonyms)


def current_value(name: str, settings: TopicSettings, broker: Settings) -> str:
    """The value in force, set or not."""
    return to_configs(settings).get(name, _default(find(name), broker)[0])


def _default(config: Config, broker: Settings) -> tuple[str, ConfigSource]:
    if config.setting not in _OF_THE_BROKER:
        return config.default, ConfigSource.DEFAULT
    value = str(getattr(broker.storage, config.setting))
    return value, ConfigSource.DEFAULT if value == config.default else ConfigSource.BROKER
