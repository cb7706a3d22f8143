"""One stored message as each protocol sees it, in JSON under /api/explain. Knows no socket."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from trimq.core.api.records import ReadableTopic, ReadPosition, RecordsApi
from trimq.core.cold_reads import ColdReadRetry
from trimq.errors import ColdRead, DamagedSegment, Refusal
from trimq.formats.crossing.explanation import explain
from trimq.model import Caller
from trimq.server.http.responses import DeferredResponse, HttpResponse, error_response, not_allowed, refusal_response


class ExplanationsApi:
    def __init__(self, records_api: RecordsApi, max_expanded_bytes: int) -> None:
        self._records_api = records_api
        self._max_expanded_bytes = max_expanded_bytes

    def answer(
        self, caller: Caller, method: str, words: Sequence[str], query: Mapping[str, str], body: bytes
    ) -> HttpResponse | DeferredResponse | None:
        """Returns None if the path belongs to another API. Raises the broker's Refusal."""
        if list(words) != ["api", "explain"]:
            return None
        if method != "GET":
            return not_allowed(method, "GET, HEAD")
        name = query.get("topic", "")
        numbers = [query.get(field, "0" if field == "stream" else "") for field in ("stream", "offset")]
        if not name or not all(text.isascii() and text.isdigit() and len(text) < 19 for text in numbers):
            return error_response(400, "BadRequest", "give topic=NAME, stream=N (default: 0) and offset=N")
        topic = self._records_api.topic(caller, name)
        place = ReadPosition(int(numbers[0]), int(numbers[1]), 1)
        return DeferredResponse(_Explaining(self._records_api, topic, place, self._max_expanded_bytes).begin)


class _Explaining:
    """One request; repeated after cold data was loaded off the event loop."""

    def __init__(
        self, records_api: RecordsApi, topic: ReadableTopic, place: ReadPosition, max_expanded_bytes: int
    ) -> None:
        self._topic = topic
        self._place = place
        self._max_expanded_bytes = max_expanded_bytes
        self._retry = ColdReadRetry(records_api.warm)

    def begin(self, done: Callable[[HttpResponse], None]) -> None:
        try:
            response = self._explain()
        except ColdRead as cold:
            self._retry.load(cold, partial(self._loaded, done))
        except Refusal as refusal:
            done(refusal_response(refusal))
        else:
            done(response)

    def _explain(self) -> HttpResponse:
        topic, place = self._topic, self._place
        parts = topic.read(place, self._retry.may_wait).parts
        found = explain(topic.layout, parts[0], topic.name, place.offset, self._max_expanded_bytes) if parts else None
        if found is None:
            what = f"{topic.name}/{place.number}@{place.offset}"
            return error_response(
                404, "UnknownMessage", f"there is no message at {what}: it is a gap, settled or not yet stored"
            )
        head = {"topic": topic.name, "stream": place.number, "offset": place.offset, "home": topic.layout.value}
        return HttpResponse.json(200, head | found)

    def _loaded(self, done: Callable[[HttpResponse], None], damage: DamagedSegment | None) -> None:
        if damage is None:
            DeferredResponse(self.begin).begin_guarded(f"GET /api/explain {self._topic.name}", done)
        else:
            done(refusal_response(damage))
