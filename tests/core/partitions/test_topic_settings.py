"""Settings of a topic, and the log configuration and batch rules made from them."""

from __future__ import annotations

import pytest

from trimq.config import Settings, Storage
from trimq.core.partitions.batch_validation import BatchRules
from trimq.core.partitions.topic_settings import (
    NO_LIMIT,
    check_sync,
    check_topic_settings,
    log_settings,
    message_limit,
    stream_rules,
)
from trimq.errors import InvalidSetting
from trimq.formats.kafka_batch.compression import Codec

BROKER = Settings()
ASYNC = Settings(flush="async", flush_interval_ms=200)

GOOD = [
    ("segment_bytes", "1024"),
    ("segment_bytes", "2147483647"),
    ("segment_ms", "1"),
    ("index_interval_bytes", "0"),
    ("retention_ms", "-1"),
    ("retention_bytes", "-1"),
    ("message_bytes", "0"),
    ("cleanup", ""),
    ("cleanup", "delete"),
    ("cleanup", "compact,delete"),
    ("delete_retention_ms", "0"),
    ("max_compaction_lag_ms", "1"),
    ("min_cleanable_dirty_ratio", "0"),
    ("min_cleanable_dirty_ratio", "1.0"),
    ("record_time", "appended"),
    ("record_age_ms", "0"),
    ("record_lead_ms", str(NO_LIMIT)),
    ("compression", "producer"),
    ("compression", "none"),
    ("gzip_level", "-1"),
    ("lz4_level", "17"),
    ("zstd_level", "-131072"),
    ("min_synced_replicas", "2"),
    ("unclean_election", "true"),
    ("sync_every_records", "1"),
    ("sync_every_ms", "0"),
    ("file_delete_delay_ms", "0"),
    ("index_bytes", "4"),
    ("preallocate", "true"),
    ("segment_jitter_ms", "999999999999"),
    ("throttled_leader_replicas", "*"),
    ("throttled_leader_replicas", ""),
    ("throttled_follower_replicas", "0:1,,1:2,0:1"),
    ("local_retention_ms", "-2"),
    ("local_retention_bytes", "5"),
    ("is_tiered_copy_disabled", "true"),
]

BAD = [
    ("no_such", "1"),
    ("file_delete_delay_ms", "-1"),
    ("index_bytes", "3"),
    ("segment_jitter_ms", "-1"),
    ("preallocate", "yes"),
    ("throttled_leader_replicas", "0:a"),
    ("throttled_leader_replicas", "0:1,*"),
    ("local_retention_ms", "-3"),
    ("segment_bytes", "1023"),
    ("segment_bytes", "2147483648"),
    ("segment_ms", "0"),
    ("retention_ms", "-2"),
    ("retention_ms", "soon"),
    ("retention_ms", "1_000"),
    ("retention_ms", "9" * 5000),
    ("retention_ms", ""),
    ("message_bytes", "1.5"),
    ("cleanup", "compact, delete"),
    ("cleanup", "compact,compact"),
    ("cleanup", "shred"),
    ("min_cleanable_dirty_ratio", "1.1"),
    ("min_cleanable_dirty_ratio", "nan"),
    ("min_cleanable_dirty_ratio", "half"),
    ("record_time", "later"),
    ("compression", "brotli"),
    ("gzip_level", "0"),
    ("gzip_level", "10"),
    ("lz4_level", "18"),
    ("zstd_level", "23"),
    ("min_synced_replicas", "0"),
    ("unclean_election", "yes"),
    ("sync_every_records", "0"),
]


@pytest.mark.parametrize(("name", "value"), GOOD)
def test_a_setting_that_can_be_enforced_is_accepted(name: str, value: str) -> None:
    check_topic_settings({name: value}, BROKER)


@pytest.mark.parametrize(("name", "value"), BAD)
def test_an_invalid_setting_is_refused_with_its_name(name: str, value: str) -> None:
    with pytest.raises(InvalidSetting) as refused:
        check_topic_settings({name: value}, BROKER)
    assert refused.value.name == name
    assert len(str(refused.value)) < 200


def test_the_maximum_compaction_lag_is_not_below_the_minimum() -> None:
    check_topic_settings({"min_compaction_lag_ms": "5", "max_compaction_lag_ms": "5"}, BROKER)
    with pytest.raises(InvalidSetting):
        check_topic_settings({"min_compaction_lag_ms": "6", "max_compaction_lag_ms": "5"}, BROKER)


@pytest.mark.parametrize(
    ("given", "is_kept"),
    [
        ({}, True),
        ({"sync_every_records": str(NO_LIMIT), "sync_every_ms": str(NO_LIMIT)}, True),
        ({"sync_every_ms": "200"}, True),
        ({"sync_every_ms": "199"}, False),
        ({"sync_every_records": "1000000"}, False),
    ],
)
def test_a_topic_that_asks_for_more_syncs_than_async_gives_is_refused(given: dict[str, str], is_kept: bool) -> None:
    check_sync(given, BROKER)
    if is_kept:
        check_sync(given, ASYNC)
    else:
        with pytest.raises(InvalidSetting):
            check_topic_settings(given, ASYNC)


def test_a_log_takes_the_topics_settings_before_the_brokers() -> None:
    broker = Settings(storage=Storage(segment_bytes=5000, retention_ms=6, index_interval_bytes=7))
    found = log_settings({"retention_ms": "60", "index_interval_bytes": "70"}, broker)
    assert (found.segment_bytes, found.retention_ms, found.index_interval_bytes) == (5000, 60, 70)
    assert message_limit({}, broker) == broker.storage.message_bytes
    assert message_limit({"message_bytes": "9"}, broker) == 9


@pytest.mark.parametrize(
    ("cleanup", "is_compacted", "is_expired"),
    [(None, False, True), ("delete", False, True), ("compact", True, False), ("compact,delete", True, True),
     ("", False, False)],
)  # fmt: skip
def test_the_cleanup_policy_sets_compaction_and_retention(
    cleanup: str | None, is_compacted: bool, is_expired: bool
) -> None:
    found = log_settings({} if cleanup is None else {"cleanup": cleanup}, BROKER)
    assert (found.is_compacted, found.is_expired) == (is_compacted, is_expired)


def test_a_compacted_log_rolls_its_segments_in_time_for_compaction() -> None:
    given = {"segment_ms": "1000", "max_compaction_lag_ms": "300"}
    assert log_settings(given, BROKER).segment_ms == 1000
    assert log_settings({**given, "cleanup": "compact"}, BROKER).segment_ms == 300


def test_without_settings_a_stream_has_the_usual_rules() -> None:
    assert stream_rules({}) == BatchRules()


def test_every_rule_of_a_stream_comes_from_a_setting() -> None:
    given = {
        "cleanup": "compact",
        "record_time": "appended",
        "record_age_ms": "5",
        "record_lead_ms": "6",
        "compression": "lz4",
    }
    assert stream_rules(given) == BatchRules(True, True, 5, 6, True, Codec.LZ4, 9)


@pytest.mark.parametrize(
    ("given", "codec", "level"),
    [
        ({"compression": "none"}, Codec.NONE, None),
        ({"compression": "gzip"}, Codec.GZIP, None),
        ({"compression": "gzip", "gzip_level": "9"}, Codec.GZIP, 9),
        ({"compression": "zstd"}, Codec.ZSTD, 3),
        ({"compression": "zstd", "zstd_level": "-1"}, Codec.ZSTD, -1),
        ({"compression": "snappy", "gzip_level": "9"}, Codec.SNAPPY, None),
        ({"compression": "producer", "gzip_level": "9"}, None, None),
    ],
)
def test_a_codec_has_the_level_that_was_set_for_it(given: dict[str, str], codec: int | None, level: int | None) -> None:
    rules = stream_rules(given)
    assert (rules.codec, rules.level) == (codec, level)
