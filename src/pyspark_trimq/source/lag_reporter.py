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

from pyspark_trimq.broker.client import Port, Range
from pyspark_trimq.source.positions import Progress
from trimq.clock import monotonic_seconds

PREFIX = "spark-"
_QUERY = "sql.streaming.queryId"

# An idle query asks for its ends ten times a second: who may not tell a lag does not try as often.
_FIRST_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 60.0

log = logging.getLogger(__name__)


def introduce(connect: Callable[[], Port], wanted: Range, planner: str) -> None:
    """In a task: what lies before its range was read by the batches before. Lag is worth no failed task."""
    context = TaskContext.get()
    query = None if context is None else context.getLocalProperty(_QUERY)
    if query is None:
        return
    try:
        port = connect()
        try:
            port.commit(PREFIX + query, {wanted.key: wanted.start}, planner)
        finally:
            port.close()
    except Exception as error:
        log.warning("the lag of the query %s is not told: %s", query, error)


class Lag:
    """On the side that plans."""

    def __init__(self, planner: str) -> None:
        self._planner = planner
        self._group: str | None = None
        self._told: Progress = {}
        self._has_planned = False
        self._farewell: subprocess.Popen[bytes] | None = None
        self._pause_s = 0.0
        self._silent_until = 0.0

    @property
    def needs_introduction(self) -> bool:
        """Whether tasks have to tell to which query they belong."""
        return self._group is None and not self._is_silent()

    def planned(self) -> None:
        """Tasks were made, which introduce themselves."""
        self._has_planned = True

    def reached(self, port: Port, progress: Progress) -> None:
        """All batches up to there are done."""
        if not self._has_planned or progress == self._told or self._is_silent():
            return
        try:
            if self._group is None:
                self._group = port.find_group(PREFIX, self._planner)
                if self._group is not None:
                    self._farewell = _prepare_farewell(port, self._group)
            if self._group is not None:
                port.commit(self._group, progress, self._planner)
                self._told = dict(progress)
                self._pause_s = 0.0
            else:
                self._pause()  # its tasks could not tell who they are
        except Exception as error:
            log.warning("the lag of a query is not told: %s", error)
            self._pause()

    def _pause(self) -> None:
        self._pause_s = min(max(2 * self._pause_s, _FIRST_PAUSE_S), _LONGEST_PAUSE_S)
        self._silent_until = monotonic_seconds() + self._pause_s

    def _is_silent(self) -> bool:
        return self._pause_s > 0 and monotonic_seconds() < self._silent_until

    def stop(self) -> None:
        """The group goes, now or when this process ends."""
        if self._farewell is not None and self._farewell.stdin is not None:
            self._farewell.stdin.close()
            self._farewell.wait()
            self._farewell = None


def _prepare_farewell(port: Port, group: str) -> subprocess.Popen[bytes]:
    host, number, requests = port.forget_request(group)
    encryption = port.encryption
    waiting = subprocess.Popen(
        [sys.executable, "-I", "-S", farewell_path(), host, str(number), *([] if encryption is None else ["tls"])],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    assert waiting.stdin is not None
    # Not as arguments: other users of the machine see those, and a request may hold a password.
    sent = requests if encryption is None else [encryption.authorities.encode() or b"-", *requests]
    waiting.stdin.write(b"\n".join(request.hex().encode() for request in sent))
    waiting.stdin.flush()
    return waiting


def farewell_path() -> str:
    return str(Path(__file__).with_name("group_cleanup.py"))
