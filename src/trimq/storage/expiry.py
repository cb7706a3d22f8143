"""Lets the head of partition logs go when it is old, when the log is too large, or when the disk needs room."""

from __future__ import annotations

from collections.abc import Iterable

from trimq.storage.partition_log import PartitionLog


def expire(log: PartitionLog, now_ms: int) -> int:
    return 0


def expire_oldest(logs: Iterable[PartitionLog], bytes_needed: int) -> int:
    return 0
