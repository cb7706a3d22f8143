"""Which files of the commit log may go: a pure decision, from the oldest on."""

from __future__ import annotations

from trimq.storage.commit_log.log import CommitLog


def start_after_retention(log: CommitLog, now_ms: int, retention_ms: int, kept_from: int | None) -> int:
    """Where the log begins without the files that were full longer ago than units are kept. `kept_from`: what stands
    there stays, however old."""
    start = log.start
    for segment in log.sealed():
        sealed_ms = log.sealed_ms(segment)
        if sealed_ms is None or now_ms - sealed_ms <= retention_ms:
            break
        if kept_from is not None and segment.base + log.file_bytes > kept_from:
            break
        start = segment.base + log.file_bytes
    return start


def start_after_freeing(log: CommitLog, excess_bytes: int, limit: int) -> int:
    """Where it begins without the oldest full files, as many as are needed to free so much; none that ends behind
    `limit`."""
    start = log.start
    for segment in log.sealed():
        end = segment.base + log.file_bytes
        if start - log.start >= excess_bytes or end > limit:
            break
        start = end
    return start
