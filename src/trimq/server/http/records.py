"""Streams of every layout over HTTP: lists them with their offsets, and returns their messages in the stored format of
the layout. Calls `RecordsApi`; knows no socket."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from trimq.core.api.records import ReadableTopic, ReadPosition, ReadResult, RecordsApi, StreamRange
from trimq.core.cold_reads import ColdReadRetry
from trimq.errors import ColdRead, DamagedSegment, OffsetOutOfRange, Refusal
from trimq.model import Caller, Layout
from trimq.server.http.responses import DeferredResponse, HttpResponse, error_response, not_allowed, refusal_response
from trimq.server.http.slices import SliceRunner, Steps, list_response, sort_names

LOG_BYTES = "application/vnd.trimq.log"

# Default and maximum size of one response. A single message may be larger.
_DEFAULT_BYTES = 1 << 20
_MAX_BYTES = 16 << 20


class BadQuery(Exception):
    """A field of the query is invalid."""


class StreamsApi:
    """`is_system_topic`: tells whether a name is a RocketMQ system topic."""

    def __init__(
        self,
        records_api: RecordsApi,
        is_system_topic: Callable[[str], bool] = lambda _: False,
        slices: SliceRunner | None = None,
    ) -> None:
        self._records_api = records_api
        self._slices = SliceRunner() if slices is None else slices
        self._is_system_topic = is_system_topic

    def answer(
        self, caller: Caller, method: str, words: Sequence[str], query: Mapping[str, str], body: bytes
    ) -> HttpResponse | DeferredResponse | None:
        """Returns None if the path belongs to another API. Raises the broker's Refusal."""
        make: Callable[[], HttpResponse | DeferredResponse]
        match words:
            case ["api", "addresses"]:
                make = self._addresses
            case ["api", "streams"]:
                make = partial(self._list, caller)
            case ["api", "streams", name]:
                make = partial(self._describe, caller, name, query)
            case ["log", name, number]:
                make = partial(self._read, caller, name, number, query)
            case _:
                return None
        if method != "GET":
            return not_allowed(method, "GET, HEAD")
        try:
            return make()
        except BadQuery as error:
            return error_response(400, "BadRequest", str(error))

    def _addresses(self) -> HttpResponse:
        found = self._records_api.addresses()
        return HttpResponse.json(200, {"addresses": {name: f"{host}:{port}" for name, (host, port) in found.items()}})

    def _list(self, caller: Caller) -> HttpResponse | DeferredResponse:
        return self._slices.respond("GET /api/streams", self._list_steps(caller))

    def _list_steps(self, caller: Caller) -> Steps[HttpResponse]:
        # Rows are kept as bytes: ten thousand objects more would start a garbage collection of 25 ms.
        rows: dict[str, msgspec.Raw] = {}
        names = yield from sort_names(self._encode_topics(caller, rows))
        return (yield from list_response("topics", map(rows.__getitem__, names)))

    def _encode_topics(self, caller: Caller, rows: dict[str, msgspec.Raw]) -> Iterator[str | None]:
        """Adds the row of each topic to `rows`. Yields its name."""
        for topic in self._records_api.iterate(caller):
            if topic is None or topic.name in rows:
                yield None
            else:
                rows[topic.name] = msgspec.Raw(msgspec.json.encode(self._topic(topic)))
                yield topic.name

    def _topic(self, topic: ReadableTopic) -> dict[str, Any]:
        is_internal = topic.layout is Layout.COMMIT_LOG and self._is_system_topic(topic.name)
        told: dict[str, Any] = {"name": topic.name, "id": str(topic.id), "home": topic.layout.value}
        return told | {"gives_away": topic.gives_away, "internal": is_internal}

    def _describe(self, caller: Caller, name: str, query: Mapping[str, str]) -> HttpResponse | DeferredResponse:
        topic = self._records_api.topic(caller, name)
        time_ms = _number(query, "time", None)
        return self._slices.respond(f"GET /api/streams/{name}", self._describe_steps(topic, time_ms))

    def _describe_steps(self, topic: ReadableTopic, time_ms: int | None) -> Steps[HttpResponse]:
        rows: list[dict[str, int]] = []
        for number in topic.numbers():
            rows.append(_span(topic, topic.span(number), time_ms))
            yield  # the first offset at a time may be searched in a file
        return (yield from list_response("streams", rows, self._topic(topic)))

    def _read(self, caller: Caller, name: str, number: str, query: Mapping[str, str]) -> DeferredResponse:
        if not (number.isascii() and number.isdigit()):
            raise BadQuery(f"{number!r} is not the number of a stream")
        topic = self._records_api.topic(caller, name)
        offset = _number(query, "from", 0)
        max_bytes = _number(query, "max_bytes", _DEFAULT_BYTES)
        isolation = query.get("isolation", "read_uncommitted")
        if isolation not in ("read_committed", "read_uncommitted"):
            raise BadQuery(f"isolation must be read_committed or read_uncommitted, not {isolation!r}")
        assert offset is not None
        assert max_bytes is not None
        place = ReadPosition(int(number), offset, min(max_bytes, _MAX_BYTES), isolation == "read_committed")
        return DeferredResponse(_RecordRead(self._records_api, topic, place).begin)


class _RecordRead:
    """One read; repeated after cold data was loaded off the event loop."""

    def __init__(self, records_api: RecordsApi, topic: ReadableTopic, place: ReadPosition) -> None:
        self._topic = topic
        self._place = place
        self._retry = ColdReadRetry(records_api.warm)

    def begin(self, done: Callable[[HttpResponse], None]) -> None:
        try:
            excerpt = self._topic.read(self._place, self._retry.may_wait)
        except ColdRead as cold:
            self._retry.load(cold, partial(self._loaded, done))
        except OffsetOutOfRange as refusal:
            done(_out_of_range(refusal, self._topic, self._place))
        except Refusal as refusal:
            done(refusal_response(refusal))
        else:
            done(self._respond(excerpt))

    def _loaded(self, done: Callable[[HttpResponse], None], damage: DamagedSegment | None) -> None:
        if damage is None:
            DeferredResponse(self.begin).begin_guarded(f"GET /log/{self._topic.name}", done)
        else:
            done(refusal_response(damage))

    def _respond(self, excerpt: ReadResult) -> HttpResponse:
        head = {"home": self._topic.layout.value, "next": excerpt.next_offset, "aborted": excerpt.aborted}
        return HttpResponse(200, msgspec.json.encode(head) + b"\n", LOG_BYTES, parts=excerpt.parts)


def _out_of_range(refusal: OffsetOutOfRange, topic: ReadableTopic, place: ReadPosition) -> HttpResponse:
    """Returns the refusal with start and end of the stream, so that a reader can restart there."""
    span = topic.span(place.number)
    told = {"error": type(refusal).__name__, "message": str(refusal), "start": span.start, "end": span.end}
    return HttpResponse.json(416, told)


def _span(topic: ReadableTopic, span: StreamRange, time_ms: int | None) -> dict[str, int]:
    row = {"stream": span.number, "start": span.start, "end": span.end, "stable_end": span.stable_end}
    row["bytes"] = span.bytes
    if time_ms is not None:
        row["at_time"] = topic.find_time(span.number, time_ms)
    return row


def _number(query: Mapping[str, str], name: str, default: int | None) -> int | None:
    text = query.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise BadQuery(f"{name} must be a number, not {text!r}")
    return int(text)
