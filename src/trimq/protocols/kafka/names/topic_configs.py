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
from trimq.protocols.kafka.names.codes import Code, Failure

_NUMBER = re.compile(r"[+-]?\d{1,19}")
_NO_LIMIT = str(2**63 - 1)


class Kind(IntEnum):
    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7
    PASSWORD = 9


class Source(IntEnum):
    """Who set a value."""

    TOPIC = 1
    BROKER = 4
    DEFAULT = 5
    GROUP = 8


class Synonym(NamedTuple):
    name: str
    value: str
    source: Source


class Described(NamedTuple):
    """One setting as DescribeConfigs tells it."""

    name: str
    value: str | None
    kind: Kind
    source: Source
    documentation: str
    synonyms: tuple[Synonym, ...] = ()
    is_read_only: bool = False
    is_sensitive: bool = False


class Config(NamedTuple):
    """`ours`: the neutral name; "" if there is none, and only the default is taken, because of `fixed`. `synonym`: what
    Kafka calls the broker's value of it, "" where it lists none. `words`: theirs to ours, where values are translated.
    """

    name: str
    kind: Kind
    default: str
    ours: str
    synonym: str
    documentation: str
    words: Mapping[str, str] = {}
    fixed: str = ""


_TIMES = {"CreateTime": "created", "LogAppendTime": "appended"}
_CODECS = {"uncompressed": "none"} | {word: word for word in ("zstd", "lz4", "snappy", "gzip", "producer")}
_NOT_TIERED = "no tiered storage is offered"
_ONE_REPLICA = "a partition has one replica, nothing is replicated"

CONFIGS = (
    Config("cleanup.policy", Kind.LIST, "delete", "cleanup", "log.cleanup.policy",
           "delete: the oldest segments go by age and size. compact: the last record of each key stays."),
    Config("compression.gzip.level", Kind.INT, "-1", "gzip_level", "compression.gzip.level",
           "How hard gzip tries when compression.type is gzip; -1 leaves it to gzip."),
    Config("compression.lz4.level", Kind.INT, "9", "lz4_level", "compression.lz4.level",
           "How hard lz4 tries when compression.type is lz4."),
    Config("compression.type", Kind.STRING, "producer", "compression", "compression.type",
           "The codec under which batches are kept; producer: as they were sent.", _CODECS),
    Config("compression.zstd.level", Kind.INT, "3", "zstd_level", "compression.zstd.level",
           "How hard zstd tries when compression.type is zstd."),
    Config("delete.retention.ms", Kind.LONG, "86400000", "delete_retention_ms", "log.cleaner.delete.retention.ms",
           "How long a compacted topic keeps the tombstone of a key."),
    Config("file.delete.delay.ms", Kind.LONG, "60000", "", "log.segment.delete.delay.ms",
           "Not used: a segment's files go at once, and readers keep what they hold.",
           fixed="a segment's files go at once, readers keep what they hold"),
    Config("flush.messages", Kind.LONG, _NO_LIMIT, "sync_every_records", "log.flush.interval.messages",
           "After how many records a partition is synced. With flush = sync each is, before it is acknowledged."),
    Config("flush.ms", Kind.LONG, _NO_LIMIT, "sync_every_ms", "",
           "After how long a record is synced. With flush = sync it is before it is acknowledged."),
    Config("follower.replication.throttled.replicas", Kind.LIST, "", "", "", "Not used: nothing is replicated.",
           fixed=_ONE_REPLICA),
    Config("index.interval.bytes", Kind.INT, "4096", "index_interval_bytes", "log.index.interval.bytes",
           "How many bytes of a new segment lie between two entries of its indexes."),
    Config("leader.replication.throttled.replicas", Kind.LIST, "", "", "", "Not used: nothing is replicated.",
           fixed=_ONE_REPLICA),
    Config("local.retention.bytes", Kind.LONG, "-2", "", "log.local.retention.bytes",
           "Not used: all segments are local.", fixed=_NOT_TIERED),
    Config("local.retention.ms", Kind.LONG, "-2", "", "log.local.retention.ms", "Not used: all segments are local.",
           fixed=_NOT_TIERED),
    Config("max.compaction.lag.ms", Kind.LONG, _NO_LIMIT, "max_compaction_lag_ms",
           "log.cleaner.max.compaction.lag.ms", "After how long a record takes part in compaction at the latest."),
    Config("max.message.bytes", Kind.INT, "1048588", "message_bytes", "message.max.bytes",
           "The largest batch that is taken, as it is compressed."),
    Config("message.timestamp.after.max.ms", Kind.LONG, "3600000", "record_lead_ms",
           "log.message.timestamp.after.max.ms", "How far a record's time may be ahead of the broker's."),
    Config("message.timestamp.before.max.ms", Kind.LONG, _NO_LIMIT, "record_age_ms",
           "log.message.timestamp.before.max.ms", "How far a record's time may be behind the broker's."),
    Config("message.timestamp.type", Kind.STRING, "CreateTime", "record_time", "log.message.timestamp.type",
           "Whose time records bear: the producer's, or the broker's when it appended them.", _TIMES),
    Config("min.cleanable.dirty.ratio", Kind.DOUBLE, "0.5", "min_cleanable_dirty_ratio",
           "log.cleaner.min.cleanable.ratio", "Which share of a log must be new before it is compacted again."),
    Config("min.compaction.lag.ms", Kind.LONG, "0", "min_compaction_lag_ms", "log.cleaner.min.compaction.lag.ms",
           "How long a record stays as it is before it takes part in compaction."),
    Config("min.insync.replicas", Kind.INT, "1", "min_synced_replicas", "min.insync.replicas",
           "How many replicas must have a record, at most all there are, before acks=all is answered."),
    Config("preallocate", Kind.BOOLEAN, "false", "", "log.preallocate",
           "Not used: segments grow as they are written.", fixed="segments grow as they are written"),
    Config("remote.log.copy.disable", Kind.BOOLEAN, "false", "", "", "Not used: all segments are local.",
           fixed=_NOT_TIERED),
    Config("remote.log.delete.on.disable", Kind.BOOLEAN, "false", "", "", "Not used: all segments are local.",
           fixed=_NOT_TIERED),
    Config("remote.storage.enable", Kind.BOOLEAN, "false", "", "", "Not used: all segments are local.",
           fixed=_NOT_TIERED),
    Config("retention.bytes", Kind.LONG, "-1", "retention_bytes", "log.retention.bytes",
           "How large a partition may grow before its oldest segments go; -1: any size."),
    Config("retention.ms", Kind.LONG, "604800000", "retention_ms", "",
           "How long a closed segment is kept after its last record; -1: for ever."),
    Config("segment.bytes", Kind.INT, "1073741824", "segment_bytes", "log.segment.bytes",
           "A segment that would grow past this size is closed."),
    Config("segment.index.bytes", Kind.INT, "10485760", "", "log.index.size.max.bytes",
           "Not used: an index grows with its segment, which never fills this much.",
           fixed="an index is as large as its segment needs it"),
    Config("segment.jitter.ms", Kind.LONG, "0", "", "", "Not used: segments are closed when segment.ms says so.",
           fixed="segments are closed when segment.ms says so"),
    Config("segment.ms", Kind.LONG, "604800000", "segment_ms", "",
           "A segment whose first record is older than this is closed."),
    Config("unclean.leader.election.enable", Kind.BOOLEAN, "false", "unclean_election",
           "unclean.leader.election.enable",
           "Whether a replica that is behind may lead; with one replica there is none."),
)  # fmt: skip
_BY_NAME = {config.name: config for config in CONFIGS}
_BY_OURS = {config.ours: config for config in CONFIGS if config.ours}

# What the broker's own settings may change for all topics.
_OF_THE_BROKER = frozenset(
    ("segment_bytes", "segment_ms", "index_interval_bytes", "retention_ms", "retention_bytes", "message_bytes")
)


def refused(name: str, reason: str) -> Failure:
    """A no to a setting under Kafka's name; the core says no under ours."""
    return Failure(Code.INVALID_CONFIG, f"{name}: {reason}")


def find(name: str) -> Config:
    config = _BY_NAME.get(name)
    if config is None:
        raise refused(name, "there is no topic setting of this name")
    return config


def is_list(name: str) -> bool:
    return find(name).kind is Kind.LIST


def canonical(config: Config, text: str) -> str:
    """The value as Kafka prints it. What is no such value is refused, here or by the core."""
    text = text.strip()
    if config.kind in (Kind.INT, Kind.LONG):
        return str(int(text)) if _NUMBER.fullmatch(text) else text
    if config.kind is Kind.DOUBLE:
        try:
            return str(float(text))
        except ValueError:
            raise refused(config.name, f"{text[:40]!r} is not a number") from None
    if config.kind is Kind.BOOLEAN:
        if text.lower() not in ("true", "false"):
            raise refused(config.name, f"{text[:40]!r} is neither true nor false")
        return text.lower()
    if config.kind is Kind.LIST:
        return ",".join(word.strip() for word in text.split(",")) if text else ""
    return text


def to_settings(configs: Mapping[str, str]) -> dict[str, str]:
    """In our words. Failure: a setting is unknown, has no such value, or is not to be changed here."""
    settings = {}
    for name, text in configs.items():
        config = find(name)
        value = canonical(config, text)
        if not config.ours:
            if value != config.default:
                raise refused(name, f"it cannot be changed here: {config.fixed}")
            continue
        if config.words and value not in config.words:
            raise refused(name, f"{value[:40]!r} is none of {', '.join(config.words)}")
        settings[config.ours] = config.words.get(value, value)
    return settings


def without_words(settings: TopicSettings) -> dict[str, str]:
    """What was set for the topic that Kafka has no words for: its clients neither see nor change it."""
    return {ours: value for ours, value in settings.items() if ours not in _BY_OURS}


def to_configs(settings: TopicSettings) -> dict[str, str]:
    """In Kafka's words: what was set for the topic itself."""
    configs = {}
    for ours, value in settings.items():
        config = _BY_OURS.get(ours)
        if config is None:
            continue
        theirs = {word: name for name, word in config.words.items()}
        configs[config.name] = theirs.get(value, value)
    return configs


def in_kafka_words(refusal: InvalidSetting) -> InvalidSetting:
    """The core's no to a setting, under the name by which the client knows it."""
    config = _BY_OURS.get(refusal.name)
    return refusal if config is None else InvalidSetting(config.name, refusal.reason)


def describe(settings: TopicSettings, broker: Settings) -> Iterator[Described]:
    """Every setting of a topic, by name."""
    own = to_configs(settings)
    for config in CONFIGS:
        default, source = _default(config, broker)
        synonyms: tuple[Synonym, ...] = ()
        if config.synonym:
            synonyms = (Synonym(config.synonym, default, source),)
        value = default
        if config.name in own:
            value, source = own[config.name], Source.TOPIC
            synonyms = (Synonym(config.name, value, source), *synonyms)
        yield Described(config.name, value, config.kind, source, config.documentation, synonyms)


def current(name: str, settings: TopicSettings, broker: Settings) -> str:
    """The value in force, set or not."""
    return to_configs(settings).get(name, _default(find(name), broker)[0])


def _default(config: Config, broker: Settings) -> tuple[str, Source]:
    if config.ours not in _OF_THE_BROKER:
        return config.default, Source.DEFAULT
    value = str(getattr(broker.storage, config.ours))
    return value, Source.DEFAULT if value == config.default else Source.BROKER
