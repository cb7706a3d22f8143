"""Settings of one partition log. Values only."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LogSettings:
    """Settings that may differ from topic to topic."""

    segment_bytes: int
    segment_ms: int
    index_interval_bytes: int
    retention_ms: int
    retention_bytes: int
    checkpoint_bytes: int
    is_compacted: bool = False
    is_expired: bool = True
    delete_retention_ms: int = 86_400_000
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = 2**63 - 1
    min_cleanable_dirty_ratio: float = 0.5
