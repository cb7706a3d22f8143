"""Settings of one topic under neutral names, with the broker's values as defaults. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial

from trimq.config import Settings
from trimq.core.partitions.batch_validation import BatchRules
from trimq.errors import InvalidSetting
from trimq.formats.kafka_batch.compression import Codec
from trimq.storage.partition_log.settings import LogSettings

TopicSettings = Mapping[str, str]

NO_LIMIT = 2**63 - 1
_INT32 = 2**31 - 1
_NUMBER = re.compile(r"-?\d{1,19}")
_REPLICA = re.compile(r"(\d{1,10}:\d{1,10})?")

APPENDED, CREATED = "appended", "created"
AS_SENT = "producer"
_CODECS = {"none": Codec.NONE, "gzip": Codec.GZIP, "snappy": Codec.SNAPPY, "lz4": Codec.LZ4, "zstd": Codec.ZSTD}
_LEVELS = {"gzip": -1, "lz4": 9, "zstd": 3}  # Kafka's defaults; snappy has no levels


def check_whole(name: str, value: str, least: int = 0, most: int = NO_LIMIT) -> None:
    if not _NUMBER.fullmatch(value):
        raise InvalidSetting(name, f"{value[:40]!r} is not a whole number")
    if not least <= int(value) <= most:
        raise InvalidSetting(name, f"{value} is not between {least} and {most}")


def _check_share(name: str, value: str) -> None:
    try:
        number = float(value)
    except ValueError:
        raise InvalidSetting(name, f"{value[:40]!r} is not a number") from None
    if not 0 <= number <= 1:  # also true of NaN
        raise InvalidSetting(name, f"{value} is not between 0 and 1")


def _check_choice(name: str, value: str, words: tuple[str, ...]) -> None:
    if value not in words:
        raise InvalidSetting(name, f"{value[:40]!r} is not one of {', '.join(words)}")


def _check_cleanup(name: str, value: str) -> None:
    """Accepts compact, delete, both, or neither: then everything is kept."""
    words = value.split(",") if value else []
    if len(set(words)) != len(words) or not {"compact", "delete"}.issuperset(words):
        raise InvalidSetting(name, f"{value[:40]!r} is not a list of compact and delete, each at most once")


def _check_gzip_level(name: str, value: str) -> None:
    check_whole(name, value, -1, 9)
    if value == "0":
        raise InvalidSetting(name, "0 does not compress: use -1 (the default) or 1 to 9")


def _check_replicas(name: str, value: str) -> None:
    """Accepts * or a list of partition:node."""
    words = value.split(",")
    if "".join(words) != "*" and not all(_REPLICA.fullmatch(word) for word in words):
        raise InvalidSetting(name, f"{value[:40]!r} is not * or a list of partition:node")


_CHECKS: dict[str, Callable[[str, str], None]] = {
    "segment_bytes": partial(check_whole, least=1024, most=_INT32),
    "segment_ms": partial(check_whole, least=1),
    "index_interval_bytes": partial(check_whole, most=_INT32),
    "retention_ms": partial(check_whole, least=-1),
    "retention_bytes": partial(check_whole, least=-NO_LIMIT - 1),
    "message_bytes": partial(check_whole, most=_INT32),
    "writable": partial(_check_choice, words=("true", "false")),
    "cleanup": _check_cleanup,
    "delete_retention_ms": check_whole,
    "min_compaction_lag_ms": check_whole,
    "max_compaction_lag_ms": partial(check_whole, least=1),
    "min_cleanable_dirty_ratio": _check_share,
    "record_time": partial(_check_choice, words=(CREATED, APPENDED)),
    "record_age_ms": check_whole,
    "record_lead_ms": check_whole,
    "compression": partial(_check_choice, words=(AS_SENT, *_CODECS)),
    "gzip_level": _check_gzip_level,
    "lz4_level": partial(check_whole, least=1, most=17),
    "zstd_level": partial(check_whole, least=-131_072, most=22),
    # With one replica the next two always hold: no more replicas can be required, none can lag behind.
    "min_synced_replicas": partial(check_whole, least=1, most=_INT32),
    "unclean_election": partial(_check_choice, words=("true", "false")),
    "sync_every_records": partial(check_whole, least=1),
    "sync_every_ms": check_whole,
    # Kept and shown, without effect here: files of a deleted segment are removed at once, segments and indexes grow as
    # they are written and are closed exactly on time, and there is neither replication nor a second tier.
    "file_delete_delay_ms": check_whole,
    "index_bytes": partial(check_whole, least=4, most=_INT32),
    "preallocate": partial(_check_choice, words=("true", "false")),
    "segment_jitter_ms": check_whole,
    "throttled_leader_replicas": _check_replicas,
    "throttled_follower_replicas": _check_replicas,
    "is_tiered": partial(_check_choice, words=("false",)),
    "local_retention_bytes": partial(check_whole, least=-2),
    "local_retention_ms": partial(check_whole, least=-2),
    "is_tiered_copy_disabled": partial(_check_choice, words=("true", "false")),
    "is_tiered_data_deleted": partial(_check_choice, words=("true", "false")),
}
SETTING_NAMES = tuple(_CHECKS)


def is_topic_setting(name: str) -> bool:
    return name in _CHECKS


def check_topic_settings(given: TopicSettings, broker: Settings) -> None:
    """Raises InvalidSetting for an unknown name or a value out of range. A setting is stored only if it is enforced,
    or if no client can see whether it is."""
    for name, value in given.items():
        check = _CHECKS.get(name)
        if check is None:
            raise InvalidSetting(name, "unknown topic setting")
        check(name, value)
    if int(given.get("max_compaction_lag_ms", NO_LIMIT)) < int(given.get("min_compaction_lag_ms", 0)):
        raise InvalidSetting("max_compaction_lag_ms", "must not be below min_compaction_lag_ms")
    check_sync(given, broker)


def check_sync(given: TopicSettings, broker: Settings) -> None:
    """Raises InvalidSetting if the topic asks for syncs that the broker does not give. With flush = sync every
    acknowledged write is on disk, which is more than a topic can ask for."""
    if broker.flush == "sync":
        return
    if int(given.get("sync_every_records", NO_LIMIT)) < NO_LIMIT:
        reason = f"the broker runs with flush = {broker.flush}, which acknowledges before it syncs; set flush = sync"
        raise InvalidSetting("sync_every_records", reason)
    if int(given.get("sync_every_ms", NO_LIMIT)) < broker.flush_interval_ms:
        reason = f"the broker runs with flush = {broker.flush} and syncs every {broker.flush_interval_ms} ms"
        raise InvalidSetting("sync_every_ms", reason)


def log_settings(given: TopicSettings, broker: Settings) -> LogSettings:
    """Returns the settings of a partition log: the topic's own, else the broker's."""

    def whole(name: str, default: int) -> int:
        return int(given[name]) if name in given else default

    is_compacted = needs_keys(given)
    storage = broker.storage
    segment_ms = whole("segment_ms", storage.segment_ms)
    max_compaction_lag_ms = whole("max_compaction_lag_ms", NO_LIMIT)
    return LogSettings(
        segment_bytes=whole("segment_bytes", storage.segment_bytes),
        # Only closed segments are compacted.
        segment_ms=min(segment_ms, max_compaction_lag_ms) if is_compacted else segment_ms,
        index_interval_bytes=whole("index_interval_bytes", storage.index_interval_bytes),
        retention_ms=whole("retention_ms", storage.retention_ms),
        retention_bytes=whole("retention_bytes", storage.retention_bytes),
        checkpoint_bytes=storage.checkpoint_bytes,
        is_compacted=is_compacted,
        is_expired=is_retention_enabled(given),
        delete_retention_ms=whole("delete_retention_ms", 86_400_000),
        min_compaction_lag_ms=whole("min_compaction_lag_ms", 0),
        max_compaction_lag_ms=max_compaction_lag_ms,
        min_cleanable_dirty_ratio=float(given.get("min_cleanable_dirty_ratio", 0.5)),
    )


def needs_keys(given: TopicSettings) -> bool:
    """Returns whether the topic is compacted, which requires a key in every record."""
    return "compact" in given.get("cleanup", "delete")


def is_retention_enabled(given: TopicSettings) -> bool:
    """Returns whether the oldest records may be deleted."""
    return "delete" in given.get("cleanup", "delete")


def message_limit(given: TopicSettings, broker: Settings) -> int:
    return int(given.get("message_bytes", broker.storage.message_bytes))


def stream_rules(given: TopicSettings) -> BatchRules:
    """Returns the rules by which the topic's streams check and rewrite batches."""
    compression = given.get("compression", AS_SENT)
    level = int(given.get(f"{compression}_level", _LEVELS.get(compression, -1)))
    return BatchRules(
        needs_keys=needs_keys(given),
        keeps_append_time=given.get("record_time") == APPENDED,
        max_age_ms=int(given.get("record_age_ms", NO_LIMIT)),
        max_lead_ms=int(given.get("record_lead_ms", BatchRules().max_lead_ms)),
        has_timestamp_window="record_age_ms" in given or "record_lead_ms" in given,
        codec=_CODECS.get(compression),
        level=None if level == -1 and compression != "zstd" else level,
        is_writable=given.get("writable") != "false",
    )
