"""Topic settings under Kafka's names: translation to ours and back, the defaults that Apache Kafka reports, and the
settings that cannot be changed here."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from enum import IntEnum
from typing import NamedTuple

from trimq.config import Settings
from trimq.core.api.dynamic_settings import DynamicSettingsApi
from trimq.core.partitions.dynamic_settings import Level
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
    """Kafka's numbers for the level at which a value was set."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    BROKER = 4
    DEFAULT = 5
    GROUP = 8


class Synonym(NamedTuple):
    name: str
    value: str
    source: ConfigSource


class DescribedConfig(NamedTuple):
    """One setting as DescribeConfigs returns it."""

    name: str
    value: str | None
    kind: ConfigType
    source: ConfigSource
    documentation: str
    synonyms: tuple[Synonym, ...] = ()
    is_read_only: bool = False
    is_sensitive: bool = False


class BrokerLevels(NamedTuple):
    """Values of the broker that topics without a value of their own have: those of the configuration file, and those
    changed live for all brokers or for this one, under our names."""

    file: Settings
    cluster: Mapping[str, str] = {}
    node: Mapping[str, str] = {}

    @classmethod
    def of(cls, file: Settings, dynamic: DynamicSettingsApi) -> BrokerLevels:
        return cls(file, dynamic.topic_defaults(Level.CLUSTER), dynamic.topic_defaults(Level.NODE))


class Config(NamedTuple):
    """One topic setting of Kafka.

    `setting`: our name.
    `synonym`: Kafka's name of the broker-level setting; "" if Kafka lists none.
    `words`: Kafka's values mapped to ours; empty if values are not translated.
    `fixed`: why only the default is accepted; "" if others are.
    """

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

CONFIGS = (
    Config("cleanup.policy", ConfigType.LIST, "delete", "cleanup", "log.cleanup.policy",
           "delete: the oldest segments are deleted by age and size. compact: the last record of each key is kept."),
    Config("compression.gzip.level", ConfigType.INT, "-1", "gzip_level", "compression.gzip.level",
           "Compression level when compression.type is gzip; -1: default of gzip."),
    Config("compression.lz4.level", ConfigType.INT, "9", "lz4_level", "compression.lz4.level",
           "Compression level when compression.type is lz4."),
    Config("compression.type", ConfigType.STRING, "producer", "compression", "compression.type",
           "Codec of stored batches; producer: the codec of the producer.", _CODECS),
    Config("compression.zstd.level", ConfigType.INT, "3", "zstd_level", "compression.zstd.level",
           "Compression level when compression.type is zstd."),
    Config("delete.retention.ms", ConfigType.LONG, "86400000", "delete_retention_ms", "log.cleaner.delete.retention.ms",
           "How long a compacted topic keeps the tombstone of a key."),
    Config("file.delete.delay.ms", ConfigType.LONG, "60000", "file_delete_delay_ms", "log.segment.delete.delay.ms",
           "No effect: segment files are deleted at once; open readers can finish."),
    Config("flush.messages", ConfigType.LONG, _NO_LIMIT, "sync_every_records", "log.flush.interval.messages",
           "A partition is synced after this many records. With flush = sync, before each acknowledgement."),
    Config("flush.ms", ConfigType.LONG, _NO_LIMIT, "sync_every_ms", "",
           "A record is synced after this time. With flush = sync, before it is acknowledged."),
    Config("follower.replication.throttled.replicas", ConfigType.LIST, "", "throttled_follower_replicas", "",
           "No effect: there is no replication."),
    Config("index.interval.bytes", ConfigType.INT, "4096", "index_interval_bytes", "log.index.interval.bytes",
           "Bytes between two index entries of a new segment."),
    Config("leader.replication.throttled.replicas", ConfigType.LIST, "", "throttled_leader_replicas", "",
           "No effect: there is no replication."),
    Config("local.retention.bytes", ConfigType.LONG, "-2", "local_retention_bytes", "log.local.retention.bytes",
           "No effect without tiered storage: all segments are local."),
    Config("local.retention.ms", ConfigType.LONG, "-2", "local_retention_ms", "log.local.retention.ms",
           "No effect without tiered storage: all segments are local."),
    Config("max.compaction.lag.ms", ConfigType.LONG, _NO_LIMIT, "max_compaction_lag_ms",
           "log.cleaner.max.compaction.lag.ms", "Longest time until a record becomes subject to compaction."),
    Config("max.message.bytes", ConfigType.INT, "1048588", "message_bytes", "message.max.bytes",
           "Largest batch that is accepted, measured after compression."),
    Config("message.timestamp.after.max.ms", ConfigType.LONG, "3600000", "record_lead_ms",
           "log.message.timestamp.after.max.ms", "How far a record's timestamp may be ahead of the broker's clock."),
    Config("message.timestamp.before.max.ms", ConfigType.LONG, _NO_LIMIT, "record_age_ms",
           "log.message.timestamp.before.max.ms", "How far a record's timestamp may be behind the broker's clock."),
    Config("message.timestamp.type", ConfigType.STRING, "CreateTime", "record_time", "log.message.timestamp.type",
           "Timestamp of records: CreateTime, set by the producer, or LogAppendTime, set by the broker.", _TIMES),
    Config("min.cleanable.dirty.ratio", ConfigType.DOUBLE, "0.5", "min_cleanable_dirty_ratio",
           "log.cleaner.min.cleanable.ratio", "Fraction of a log that must be new before it is compacted again."),
    Config("min.compaction.lag.ms", ConfigType.LONG, "0", "min_compaction_lag_ms", "log.cleaner.min.compaction.lag.ms",
           "Shortest time until a record becomes subject to compaction."),
    Config("min.insync.replicas", ConfigType.INT, "1", "min_synced_replicas", "min.insync.replicas",
           "Replicas that must have a record, at most all existing ones, before acks=all is answered."),
    Config("preallocate", ConfigType.BOOLEAN, "false", "preallocate", "log.preallocate",
           "No effect: segments grow as they are written."),
    Config("remote.log.copy.disable", ConfigType.BOOLEAN, "false", "is_tiered_copy_disabled", "",
           "No effect without tiered storage: all segments are local."),
    Config("remote.log.delete.on.disable", ConfigType.BOOLEAN, "false", "is_tiered_data_deleted", "",
           "No effect without tiered storage: all segments are local."),
    Config("remote.storage.enable", ConfigType.BOOLEAN, "false", "is_tiered", "", "Not used: all segments are local.",
           fixed="tiered storage is not supported"),
    Config("retention.bytes", ConfigType.LONG, "-1", "retention_bytes", "log.retention.bytes",
           "Size of a partition above which its oldest segments are deleted; -1: unlimited."),
    Config("retention.ms", ConfigType.LONG, "604800000", "retention_ms", "",
           "How long a closed segment is kept after its last record; -1: forever."),
    Config("segment.bytes", ConfigType.INT, "1073741824", "segment_bytes", "log.segment.bytes",
           "A segment that would grow past this size is closed."),
    Config("segment.index.bytes", ConfigType.INT, "10485760", "index_bytes", "log.index.size.max.bytes",
           "No effect: an index grows with its segment."),
    Config("segment.jitter.ms", ConfigType.LONG, "0", "segment_jitter_ms", "",
           "No effect: segments are closed exactly after segment.ms."),
    Config("segment.ms", ConfigType.LONG, "604800000", "segment_ms", "",
           "A segment whose first record is older than this is closed."),
    Config("unclean.leader.election.enable", ConfigType.BOOLEAN, "false", "unclean_election",
           "unclean.leader.election.enable",
           "Whether an out-of-sync replica may become leader; no effect with one replica."),
)  # fmt: skip
_BY_NAME = {config.name: config for config in CONFIGS}
_BY_SETTING = {config.setting: config for config in CONFIGS if config.setting}

MIN_INSYNC_REPLICAS = "min.insync.replicas"

# Topic settings for which Kafka's DescribeConfigs lists no broker-level name, though there is one.
_UNLISTED_NAMES = {
    "flush.ms": "log.flush.interval.ms",
    "retention.ms": "log.retention.ms",
    "segment.jitter.ms": "log.roll.jitter.ms",
    "segment.ms": "log.roll.ms",
}
BROKER_NAMES = {
    name: config
    for config in CONFIGS
    if (name := config.synonym or _UNLISTED_NAMES.get(config.name)) and config.setting
}
"""Kafka's names of the defaults of topic settings, which can be changed live."""

# Settings whose default for all topics comes from the settings of the broker.
_OF_THE_BROKER = frozenset(
    ("segment_bytes", "segment_ms", "index_interval_bytes", "retention_ms", "retention_bytes", "message_bytes")
)


def invalid_config(name: str, reason: str) -> KafkaRefusal:
    """Returns a refusal under Kafka's name of the setting; refusals of the core use our name."""
    return KafkaRefusal(Code.INVALID_CONFIG, f"{name}: {reason}")


def find(name: str) -> Config:
    config = _BY_NAME.get(name)
    if config is None:
        raise invalid_config(name, "unknown topic setting")
    return config


def is_list(name: str) -> bool:
    return find(name).kind is ConfigType.LIST


def canonical(config: Config, text: str) -> str:
    """Returns the value as Kafka prints it. Invalid values are refused here or later by the core."""
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
            raise invalid_config(config.name, f"{text[:40]!r} is not true or false")
        return text.lower()
    if config.kind is ConfigType.LIST:
        return ",".join(word.strip() for word in text.split(",")) if text else ""
    return text


def to_settings(configs: Mapping[str, str]) -> dict[str, str]:
    """Translates from Kafka's names. Raises KafkaRefusal if a setting is unknown, invalid, or cannot be changed."""
    settings = {}
    for name, text in configs.items():
        config = find(name)
        value = translate(config, text)
        if config.fixed and value != config.default:
            raise invalid_config(name, f"cannot be changed: {config.fixed}")
        settings[config.setting] = value
    return settings


def translate(config: Config, text: str) -> str:
    """Returns our word for a value. Invalid values are refused here or later by the core."""
    value = canonical(config, text)
    if config.words and value not in config.words:
        raise invalid_config(config.name, f"{value[:40]!r} is not one of {', '.join(config.words)}")
    return config.words.get(value, value)


def kafka_word(config: Config, value: str) -> str:
    """Returns Kafka's word for a value of ours."""
    return next((word for word, ours in config.words.items() if ours == value), value)


def settings_unknown_to_kafka(settings: TopicSettings) -> dict[str, str]:
    """Returns settings of the topic that have no Kafka name. Kafka clients neither see nor change them."""
    return {setting: value for setting, value in settings.items() if setting not in _BY_SETTING}


def to_configs(settings: TopicSettings) -> dict[str, str]:
    """Translates the settings of the topic itself, without defaults, to Kafka's names."""
    configs = {}
    for setting, value in settings.items():
        config = _BY_SETTING.get(setting)
        if config is None:
            continue
        configs[config.name] = kafka_word(config, value)
    return configs


def with_kafka_name(refusal: InvalidSetting) -> InvalidSetting:
    """Returns the core's refusal of a setting under Kafka's name of it."""
    config = _BY_SETTING.get(refusal.name)
    return refusal if config is None else InvalidSetting(config.name, refusal.reason)


def describe(settings: TopicSettings, levels: BrokerLevels) -> Iterator[DescribedConfig]:
    """Yields every setting of a topic, in order of its name."""
    own = to_configs(settings)
    for config in CONFIGS:
        found = defaults_of(config, levels)
        synonyms = tuple(each for each in found if each.name)
        value, source = found[0].value, found[0].source
        if config.name in own:
            value, source = own[config.name], ConfigSource.TOPIC
            synonyms = (Synonym(config.name, value, source), *synonyms)
        yield DescribedConfig(config.name, value, config.kind, source, config.documentation, synonyms)


def current_value(name: str, settings: TopicSettings, levels: BrokerLevels) -> str:
    """Returns the value in force: that of the topic, or else the default."""
    return to_configs(settings).get(name, defaults_of(find(name), levels)[0].value)


def defaults_of(config: Config, levels: BrokerLevels) -> list[Synonym]:
    """Returns the values of all levels above the topic, the one in force first. The name is empty where Kafka lists
    none."""
    found = []
    broker_name = config.synonym or _UNLISTED_NAMES.get(config.name, "")
    for source, values in (
        (ConfigSource.DYNAMIC_BROKER, levels.node),
        (ConfigSource.DYNAMIC_DEFAULT_BROKER, levels.cluster),
    ):
        value = values.get(config.setting)
        if value is None and config.name == MIN_INSYNC_REPLICAS and source is ConfigSource.DYNAMIC_DEFAULT_BROKER:
            value = config.default  # Kafka sets it for the cluster when the cluster is made
        if value is not None:
            found.append(Synonym(broker_name, kafka_word(config, value), source))
    if config.setting in _OF_THE_BROKER:
        value = str(getattr(levels.file.storage, config.setting))
        if value != config.default:
            found.append(Synonym(config.synonym, value, ConfigSource.BROKER))
    found.append(Synonym(config.synonym, config.default, ConfigSource.DEFAULT))
    return found
