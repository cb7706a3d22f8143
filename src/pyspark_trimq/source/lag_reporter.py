"""Commits the progress of a streaming query as the group `spark-<query id>`, so that tools and metrics show its lag.

Spark passes the query id to the tasks of a query, but not to the reader that plans its batches (the planner). So the
first tasks commit the start offsets of their batch with the planner's id as metadata. The planner finds its group by
that metadata and from then on commits offsets itself, after each completed batch. When the query has ended, the group
stays with the metadata `stopped`, or is deleted."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from pyspark import TaskContext

from pyspark_trimq.broker.client import BrokerClient, OffsetRange
from pyspark_trimq.source.positions import OffsetsByStream
from trimq.clock import monotonic_seconds

PREFIX = "spark-"
STOPPED = "stopped"  # metadata of the offsets of a query that has ended
_QUERY = "sql.streaming.queryId"

# An idle query polls ten times a second. If commits fail, for example for lack of permission, it retries less often.
_FIRST_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 60.0

log = logging.getLogger(__name__)


def commit_first_offset(connect: Callable[[], BrokerClient], wanted: OffsetRange, planner: str) -> None:
    """Called in a task: commits the start of its range. A failure is logged and does not fail the task."""
    context = TaskContext.get()
    query = None if context is None else context.getLocalProperty(_QUERY)
    if query is None:
        return
    try:
        client = connect()
        try:
            client.commit(PREFIX + query, {wanted.key: wanted.start}, planner)
        finally:
            client.close()
    except Exception as error:
        log.warning("query %s: cannot commit its offsets, so the broker shows no lag (%s)", query, error)


class LagReporter:
    """Reports progress from the process that plans the query."""

    def __init__(self, planner: str, keeps_group: bool = True) -> None:
        """`keeps_group`: the group stays when the query has ended, marked as stopped."""
        self._planner = planner
        self._keeps_group = keeps_group
        self._group: str | None = None
        self._reported_offsets: OffsetsByStream = {}
        self._has_planned = False
        self._group_cleanup: subprocess.Popen[bytes] | None = None
        self._pause_s = 0.0
        self._paused_until = 0.0

    @property
    def needs_group(self) -> bool:
        """True if tasks have to commit first, because the planner does not know its group yet."""
        return self._group is None and not self._is_paused()

    def planned(self) -> None:
        """Called after tasks were planned: from now on the group can exist."""
        self._has_planned = True

    def report_progress(self, client: BrokerClient, progress: OffsetsByStream) -> None:
        """Commits `progress`, up to which all batches are completed. A failure is logged and retried later."""
        if not self._has_planned or progress == self._reported_offsets or self._is_paused():
            return
        try:
            if self._group is None:
                self._group = client.find_group(PREFIX, self._planner)
                if self._group is not None:
                    self._group_cleanup = _start_group_cleanup(client, self._group)
            if self._group is not None:
                client.commit(self._group, progress, self._planner)
                if self._group_cleanup is not None and self._keeps_group:
                    _give_requests(self._group_cleanup, client, client.commit_requests(self._group, progress, STOPPED))
                self._reported_offsets = dict(progress)
                self._pause_s = 0.0
            else:
                self._pause()  # no task could commit
        except Exception as error:
            log.warning("streaming query: cannot commit its offsets, so the broker shows no lag (%s)", error)
            self._pause()

    def _pause(self) -> None:
        self._pause_s = min(max(2 * self._pause_s, _FIRST_PAUSE_S), _LONGEST_PAUSE_S)
        self._paused_until = monotonic_seconds() + self._pause_s

    def _is_paused(self) -> bool:
        return self._pause_s > 0 and monotonic_seconds() < self._paused_until

    def stop(self) -> None:
        """Ends the cleanup program, which marks the group as stopped or deletes it. It does so too if this process is
        killed instead."""
        if self._group_cleanup is not None and self._group_cleanup.stdin is not None:
            self._group_cleanup.stdin.close()
            self._group_cleanup.wait()
            self._group_cleanup = None


def _start_group_cleanup(client: BrokerClient, group: str) -> subprocess.Popen[bytes]:
    """Starts the cleanup program, which deletes the group unless it is given other requests."""
    host, number, requests = client.delete_group_request(group)
    tls = [] if client.encryption is None else ["tls"]
    waiting = subprocess.Popen(
        [sys.executable, "-I", "-S", group_cleanup_path(), host, str(number), *tls],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    _give_requests(waiting, client, requests)
    return waiting


def _give_requests(cleanup: subprocess.Popen[bytes], client: BrokerClient, requests: Sequence[bytes]) -> None:
    """Replaces the requests that the cleanup program will send."""
    assert cleanup.stdin is not None
    # Via stdin: other users of the machine can see arguments, and a request may contain a password.
    encryption = client.encryption
    sent = requests if encryption is None else [encryption.ca_certificates.encode() or b"-", *requests]
    cleanup.stdin.write(b" ".join(request.hex().encode() for request in sent) + b"\n")
    cleanup.stdin.flush()


def group_cleanup_path() -> str:
    return str(Path(__file__).with_name("group_cleanup.py"))
