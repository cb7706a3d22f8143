"""Tells the broker how far a streaming query is, as the group `spark-<query id>`: lag that its tools and metrics show.

The reader that plans a query's batches is not told the query's id; its tasks are. So the first tasks tell the broker
how far the query was before their batch, with a note of who planned them; the planner finds its group by that note, and
from then on moves its cursors itself, after each batch that is done."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from pyspark import TaskContext

from pyspark_trimq.broker.client import BrokerClient, OffsetRange
from pyspark_trimq.source.positions import OffsetsByStream
from trimq.clock import monotonic_seconds

PREFIX = "spark-"
_QUERY = "sql.streaming.queryId"

# An idle query asks for its ends ten times a second: who may not tell a lag does not try as often.
_FIRST_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 60.0

log = logging.getLogger(__name__)


def commit_first_offset(connect: Callable[[], BrokerClient], wanted: OffsetRange, planner: str) -> None:
    """In a task: what lies before its range was read by the batches before. Lag is worth no failed task."""
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
        log.warning("the lag of the query %s is not told: %s", query, error)


class LagReporter:
    """On the side that plans."""

    def __init__(self, planner: str) -> None:
        self._planner = planner
        self._group: str | None = None
        self._reported_offsets: OffsetsByStream = {}
        self._has_planned = False
        self._group_cleanup: subprocess.Popen[bytes] | None = None
        self._pause_s = 0.0
        self._paused_until = 0.0

    @property
    def needs_group(self) -> bool:
        """Whether tasks have to tell to which query they belong."""
        return self._group is None and not self._is_paused()

    def planned(self) -> None:
        """Tasks were made, which introduce themselves."""
        self._has_planned = True

    def report_progress(self, client: BrokerClient, progress: OffsetsByStream) -> None:
        """All batches up to there are done."""
        if not self._has_planned or progress == self._reported_offsets or self._is_paused():
            return
        try:
            if self._group is None:
                self._group = client.find_group(PREFIX, self._planner)
                if self._group is not None:
                    self._group_cleanup = _start_group_cleanup(client, self._group)
            if self._group is not None:
                client.commit(self._group, progress, self._planner)
                self._reported_offsets = dict(progress)
                self._pause_s = 0.0
            else:
                self._pause()  # its tasks could not tell who they are
        except Exception as error:
            log.warning("the lag of a query is not told: %s", error)
            self._pause()

    def _pause(self) -> None:
        self._pause_s = min(max(2 * self._pause_s, _FIRST_PAUSE_S), _LONGEST_PAUSE_S)
        self._paused_until = monotonic_seconds() + self._pause_s

    def _is_paused(self) -> bool:
        return self._pause_s > 0 and monotonic_seconds() < self._paused_until

    def stop(self) -> None:
        """The group goes, now or when this process ends."""
        if self._group_cleanup is not None and self._group_cleanup.stdin is not None:
            self._group_cleanup.stdin.close()
            self._group_cleanup.wait()
            self._group_cleanup = None


def _start_group_cleanup(client: BrokerClient, group: str) -> subprocess.Popen[bytes]:
    host, number, requests = client.delete_group_request(group)
    encryption = client.encryption
    waiting = subprocess.Popen(
        [sys.executable, "-I", "-S", group_cleanup_path(), host, str(number), *([] if encryption is None else ["tls"])],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    assert waiting.stdin is not None
    # Not as arguments: other users of the machine see those, and a request may hold a password.
    sent = requests if encryption is None else [encryption.ca_certificates.encode() or b"-", *requests]
    waiting.stdin.write(b"\n".join(request.hex().encode() for request in sent))
    waiting.stdin.flush()
    return waiting


def group_cleanup_path() -> str:
    return str(Path(__file__).with_name("group_cleanup.py"))
