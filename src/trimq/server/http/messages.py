"""Messages of every layout in JSON under /api/messages, decoded one by one for people. Nothing is taken from anybody.
Knows no socket."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from trimq.core.api.broker import Broker
from trimq.core.api.records import RecordsApi
from trimq.core.cold_reads import ColdReadRetry
from trimq.core.crossing.streams import ForeignStream
from trimq.errors import ColdRead, DamagedSegment, OffsetOutOfRange, Refusal
from trimq.formats.crossing.neutral import Neutral
from trimq.model import Caller
from trimq.server.http.responses import DeferredResponse, HttpResponse, error_response, not_allowed, refusal_response

_MOST_MESSAGES = 100
_MOST_BYTES = 1 << 20

# Bytes of a body or a field that a page shows; the whole message is at /log.
_SHOWN_BYTES = 16 * 1024


class MessagesApi:
    def __init__(self, broker: Broker, records_api: RecordsApi) -> None:
        self._broker = broker
        self._records_api = records_api

    def answer(
        self, caller: Caller, method: str, words: Sequence[str], query: Mapping[str, str], body: bytes
    ) -> HttpResponse | DeferredResponse | None:
        """Returns None if the path belongs to another API. Raises the broker's Refusal."""
        match words:
            case ["api", "messages", name, number]:
                if method != "GET":
                    return not_allowed(method, "GET, HEAD")
                return self._read(caller, name, number, query)
        return None

    def _read(
        self, caller: Caller, name: str, number: str, query: Mapping[str, str]
    ) -> HttpResponse | DeferredResponse:
        numbers = [_read_number(text) for text in (number, query.get("from", "0"), query.get("limit", "50"))]
        if None in numbers:
            return error_response(400, "BadRequest", "stream, from and limit must be numbers")
        stream_number, offset, limit = (found or 0 for found in numbers)
        topic = self._records_api.topic(caller, name)
        stream = self._broker.foreign_topics.readable_stream(caller, topic.id, stream_number)
        read = _MessageRead(self._records_api, stream, name, offset, min(limit, _MOST_MESSAGES))
        return DeferredResponse(read.begin)


class _MessageRead:
    """One request; repeated after cold data was loaded off the event loop."""

    def __init__(self, records_api: RecordsApi, stream: ForeignStream, name: str, offset: int, limit: int) -> None:
        self._stream = stream
        self._name = name
        self._offset = offset
        self._limit = limit
        self._retry = ColdReadRetry(records_api.warm)

    def begin(self, done: Callable[[HttpResponse], None]) -> None:
        try:
            response = self._read()
        except ColdRead as cold:
            self._retry.load(cold, partial(self._loaded, done))
        except OffsetOutOfRange as refusal:
            ends = {"start": refusal.start, "end": refusal.end}
            done(HttpResponse.json(416, {"error": "OffsetOutOfRange", "message": str(refusal)} | ends))
        except Refusal as refusal:
            done(refusal_response(refusal))
        else:
            done(response)

    def _read(self) -> HttpResponse:
        stream = self._stream
        offset = max(self._offset, stream.start)
        found = stream.read(offset, self._limit, _MOST_BYTES, self._retry.may_wait)
        rows = [describe_message(offset, message) for offset, message in found.messages]
        ends = {"start": stream.start, "end": stream.readable_end, "next": found.next_offset}
        return HttpResponse.json(200, {"topic": self._name, "stream": stream.id.number, "messages": rows} | ends)

    def _loaded(self, done: Callable[[HttpResponse], None], damage: DamagedSegment | None) -> None:
        if damage is None:
            DeferredResponse(self.begin).begin_guarded(f"GET /api/messages/{self._name}", done)
        else:
            done(refusal_response(damage))


def describe_message(offset: int, message: Neutral) -> dict[str, Any]:
    """Returns a message as a page shows it: texts as they are, other bytes in hexadecimal digits."""
    body = message.body
    return {
        "offset": offset,
        "time_ms": message.timestamp_ms,
        "origin": message.origin,
        "key": _shown(message.key),
        "headers": [[name, _shown(value)] for name, value in message.headers],
        "fields": dict(message.fields),
        "body": _shown(body),
        "body_bytes": None if body is None else len(body),
    }


def _shown(value: bytes | None) -> dict[str, Any] | None:
    """Returns the bytes as text, or in hexadecimal digits (`form`), cut to what a page shows."""
    if value is None:
        return None
    piece = value[:_SHOWN_BYTES]
    is_cut = len(piece) < len(value)
    try:
        # A character that the cut has divided is not the fault of the text.
        text = piece.decode("utf-8", "strict") if not is_cut else piece.decode("utf-8", "ignore")
    except UnicodeDecodeError:
        return {"form": "hex", "text": piece.hex(" "), "is_cut": is_cut}
    if "\0" in text or (is_cut and len(text.encode()) < len(piece) - 3):
        return {"form": "hex", "text": piece.hex(" "), "is_cut": is_cut}
    return {"form": "text", "text": text, "is_cut": is_cut}


def _read_number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None
