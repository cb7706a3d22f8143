"""Long work of HTTP requests, divided among turns of the event loop: a list of many thousand rows delays no other
client. Knows no route."""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import NamedTuple, TypeVar

import msgspec

from trimq.clock import LoopTime, Timeline
from trimq.server.http.responses import JSON, DeferredResponse, Done, HttpResponse, guarded
from trimq.storage.group_commit.passes import Ticket

# Time for all long requests together in one turn of the loop. One step may exceed it by its own length.
SLICE_MS = 2

# Rows per step: it takes far less than a millisecond.
ROWS = 64

_SORTED_AT_ONCE = 512

# A body is sent in parts of about this size.
_PART_BYTES = 256 * 1024

T = TypeVar("T")
R = TypeVar("R")

Steps = Generator[None, None, R]
"""Work in steps: may pause at each `yield`, and returns its result."""

Rows = Iterable[T | None]
"""Objects to list. None: an object was skipped."""


class _Work(NamedTuple):
    asked: str
    steps: Steps[HttpResponse]
    done: Done


class SliceRunner:
    """Runs the long requests of all connections, one after the other in turn."""

    def __init__(
        self, timeline: Timeline | None = None, call_soon: Callable[[Callable[[], None]], object] | None = None
    ) -> None:
        """By default, runs on the event loop that is running."""
        self._timeline = LoopTime() if timeline is None else timeline
        self._call_soon = _call_soon if call_soon is None else call_soon
        self._waiting: deque[_Work] = deque()
        self._is_scheduled = False

    def respond(self, asked: str, steps: Steps[HttpResponse]) -> HttpResponse | DeferredResponse:
        """Does the first slice of the work now, unless other requests wait. Returns the response if that completes it.
        Raises what the first slice raises. `asked` names the request in the log."""
        if not self._waiting and (response := self._run(steps)) is not None:
            return response
        return DeferredResponse(lambda done: self._wait(_Work(asked, steps, done)))

    def _wait(self, work: _Work) -> None:
        self._waiting.append(work)
        self._schedule()

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._call_soon(self._take_turn)

    def _take_turn(self) -> None:
        self._is_scheduled = False
        work = self._waiting.popleft()
        response = guarded(work.asked, lambda: self._run(work.steps))
        if response is None:
            self._waiting.append(work)
        if self._waiting:
            self._schedule()
        if response is not None:
            work.done(response)

    def _run(self, steps: Steps[HttpResponse]) -> HttpResponse | None:
        """Returns None when the time of the slice is over."""
        until_ms = self._timeline.now_ms() + SLICE_MS
        try:
            while True:
                next(steps)
                if self._timeline.now_ms() >= until_ms:
                    return None
        except StopIteration as end:
            response: HttpResponse = end.value
            return response


def _none() -> None:
    return None


def _call_soon(callback: Callable[[], None]) -> None:
    asyncio.get_running_loop().call_soon(callback)


class BodyBuilder:
    """Collects a long body in parts that are few and large."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._pieces: list[bytes] = []
        self._size = 0

    def add(self, piece: bytes) -> None:
        self._pieces.append(piece)
        self._size += len(piece)
        if self._size >= _PART_BYTES:
            self._join()

    def add_rows(self, rows: Rows[object]) -> Steps[None]:
        """Adds rows as the elements of a JSON array, without its brackets."""
        is_first = True
        for some in _batches(rows, ROWS):
            if some:
                self.add(b"" if is_first else b",")
                self.add(msgspec.json.encode(some)[1:-1])
                is_first = False
            yield

    def response(self, content_type: str, ticket: Ticket | None = None) -> HttpResponse:
        self._join()
        if len(self._parts) > 1:
            return HttpResponse(200, b"", content_type, ticket, parts=self._parts)
        return HttpResponse(200, self._parts[0], content_type, ticket)

    def _join(self) -> None:
        self._parts.append(b"".join(self._pieces))
        self._pieces, self._size = [], 0


def list_response(
    name: str, rows: Rows[object], fields: dict[str, object] | None = None, ticket: Callable[[], Ticket | None] = _none
) -> Steps[HttpResponse]:
    """Makes the response `{fields, name: [rows]}`. `ticket` returns its ticket after the last row was made."""
    body = BodyBuilder()
    body.add(msgspec.json.encode((fields or {}) | {name: []})[:-2])
    yield from body.add_rows(rows)
    body.add(b"]}")
    return body.response(JSON, ticket())


def sort_names(names: Rows[str]) -> Steps[Iterator[str]]:
    """Sorts in steps; each name that is taken from the result costs a few comparisons more."""
    runs: list[list[str]] = []
    for some in _batches(names, _SORTED_AT_ONCE):
        some.sort()
        runs.append(some)
        yield
    return heapq.merge(*runs)


def _batches(items: Rows[T], size: int) -> Iterator[list[T]]:
    """Yields lists of `size` items each, less those that were skipped."""
    batch: list[T] = []
    for count, item in enumerate(items, 1):
        if item is not None:
            batch.append(item)
        if count % size == 0:
            yield batch
            batch = []
    if batch:
        yield batch
