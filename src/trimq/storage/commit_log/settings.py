"""Settings of the commit log, its queues and its key index. Values only; the defaults are RocketMQ's."""

from __future__ import annotations

from dataclasses import dataclass

HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class CommitSettings:
    file_bytes: int = 1 << 30
    queue_file_entries: int = 300_000
    index_slots: int = 5_000_000
    index_entries: int = 20_000_000
    checkpoint_bytes: int = 64 << 20
    retention_ms: int = 72 * HOUR_MS
