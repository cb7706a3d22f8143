"""Decides which files of the commit log to remove, from the oldest on. Pure."""

from __future__ import annotations

from trimq.storage.commit_log.log import CommitLog


def start_after_retention(log: CommitLog, now_ms: int, retention_ms: int, kept_from: int | None) -> int:
    """Returns the start of the log without the files that were full longer ago than the retention time. The file with
    position `kept_from` and all after it stay, however old."""
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
    """Returns the start of the log without as many of the oldest full files as needed to free `excess_bytes`; none that
    ends after `limit`."""
    start = log.start
    for segment in log.sealed():
        end = segment.base + log.file_bytes
        if start - log.start >= excess_bytes or end > limit:
            break
        start = end
    return start
