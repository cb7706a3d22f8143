"""What may be set for one topic, in neutral words, with the broker's values as defaults. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from trimq.config import Settings
from trimq.errors import InvalidSetting
from trimq.storage.partition_log import LogSettings

TopicSettings = Mapping[str, str]

_WHOLE = {
    # name: least value. -1 means "no limit" where it is allowed.
    "segment_bytes": 1024,
    "segment_ms": 1,
    "retention_ms": -1,
    "retention_bytes": -1,
    "message_bytes": 0,
    "delete_retention_ms": 0,
    "min_compaction_lag_ms": 0,
}
_SHARES = ("min_cleanable_dirty_ratio",)
_CLEANUP = ("delete", "compact", "compact,delete", "delete,compact")


def check_topic_settings(given: TopicSettings) -> None:
    """Refuse what is unknown or out of range: nothing is stored that is not enforced."""
    for name, value in given.items():
        if name == "cleanup":
            if value not in _CLEANUP:
                raise InvalidSetting(name, f"{value!r} is none of {', '.join(_CLEANUP)}")
        elif name in _WHOLE:
            _check_whole(name, value)
        elif name in _SHARES:
            _check_share(name, value)
        else:
            raise InvalidSetting(name, "there is no such topic setting")


def _check_whole(name: str, value: str) -> None:
    try:
        number = int(value)
    except ValueError:
        raise InvalidSetting(name, f"{value!r} is not a whole number") from None
    if number < _WHOLE[name]:
        raise InvalidSetting(name, f"{number} is below {_WHOLE[name]}")


def _check_share(name: str, value: str) -> None:
    try:
        number = float(value)
    except ValueError:
        raise InvalidSetting(name, f"{value!r} is not a number") from None
    if not 0 <= number <= 1:  # nor is it when it is not a number at all
        raise InvalidSetting(name, f"{value} is not between 0 and 1")


def log_settings(given: TopicSettings, broker: Settings) -> LogSettings:
    """The settings of a partition log: the topic's own, else the broker's."""

    def whole(name: str, default: int) -> int:
        return int(given[name]) if name in given else default

    cleanup = given.get("cleanup", "delete")
    storage = broker.storage
    return LogSettings(
        segment_bytes=whole("segment_bytes", storage.segment_bytes),
        segment_ms=whole("segment_ms", storage.segment_ms),
        index_interval_bytes=storage.index_interval_bytes,
        retention_ms=whole("retention_ms", storage.retention_ms),
        retention_bytes=whole("retention_bytes", storage.retention_bytes),
        checkpoint_bytes=storage.checkpoint_bytes,
        is_compacted="compact" in cleanup,
        is_expired="delete" in cleanup,
        delete_retention_ms=whole("delete_retention_ms", 86_400_000),
        min_compaction_lag_ms=whole("min_compaction_lag_ms", 0),
        min_cleanable_dirty_ratio=float(given.get("min_cleanable_dirty_ratio", 0.5)),
    )


def message_limit(given: TopicSettings, broker: Settings) -> int:
    return int(given.get("message_bytes", broker.storage.message_bytes))
