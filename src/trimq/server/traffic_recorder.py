"""Front-ends that record connections, requests with their outcome, and new topics. Does not change the traffic; events
are formatted only when read."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from trimq.config import Settings
from trimq.core.partitions.topics import Topics
from trimq.errors import ProtocolError
from trimq.protocols.contract import Build, ConnectionDetails, Conversation, FrontEnd, Parts, Reply, SessionControl
from trimq.server.front_ends import FrontEndParts, ListenerPlan, MakeFrontEnd, PlannedListener
from trimq.server.request_descriptions import RequestDescription, describe

OnEvent = Callable[[object], None]

# Of a longer response only the size is recorded: it consists mostly of records.
_KEPT_BYTES = 4096


class RecordedFrontEnds:
    """Wraps the front-ends of a plan, so that each reports its events to `on_event`. Called like the plan that it
    replaces."""

    def __init__(self, plan: ListenerPlan, on_event: OnEvent) -> None:
        self._plan = plan
        self._on_event = on_event
        self._topics: Topics | None = None
        self._known: set[str] = set()

    def __call__(self, settings: Settings) -> dict[str, PlannedListener]:
        planned = self._plan(settings).items()
        return {name: each._replace(make=partial(self._make, name, each.make)) for name, each in planned}

    def _make(self, name: str, make: MakeFrontEnd, parts: FrontEndParts) -> FrontEnd:
        if self._topics is None:
            self._topics = parts.core.topics
            self._known = {str(topic.name) for topic in self._topics}
        return _RecordedFrontEnd(name, make(parts), self._on_event, self.report_new_topics)

    def report_new_topics(self) -> None:
        """Reports topics created since the last call. Compares the number of topics first: cheap enough for every
        request."""
        if self._topics is None or len(self._topics) == len(self._known):
            return
        for topic in self._topics:
            if str(topic.name) not in self._known:
                self._on_event(f"topic {topic.name} was created with {len(topic.streams)} streams")
        self._known = {str(topic.name) for topic in self._topics}


class _RecordedFrontEnd:
    def __init__(self, name: str, inner: FrontEnd, on_event: OnEvent, handled: Callable[[], None]) -> None:
        self._name = name
        self._inner = inner
        self._on_event = on_event
        self._handled = handled

    def open_conversation(self, address: str, outlet: SessionControl) -> Conversation:
        where = f"{self._name} {address}"
        self._on_event(f"{where}: connected")
        return _RecordedConversation(
            where, self._inner.open_conversation(address, outlet), self._on_event, self._handled
        )


class _RecordedConversation:
    def __init__(self, where: str, inner: Conversation, on_event: OnEvent, handled: Callable[[], None]) -> None:
        self._where = where
        self._inner = inner
        self._on_event = on_event
        self._handled = handled
        self._unanswered: dict[RecordedRequest, None] = {}
        self.identify = inner.identify
        self.get_buffer = inner.get_buffer
        self.buffer_updated = inner.buffer_updated
        self.next_event = inner.next_event
        self.release_memory = inner.release_memory
        self.on_congestion_end = inner.on_congestion_end

    def handle(self, event: object) -> Reply | None:
        recorded = RecordedRequest(self._where, describe(event))
        self._on_event(recorded)
        try:
            reply = self._inner.handle(event)
        except Exception as error:
            recorded.end = f"{type(error).__name__}: {error}"
            raise
        self._handled()
        if reply is None:
            recorded.end = "no response expected"
            return None
        self._unanswered[recorded] = None
        reply.wrap(partial(self._record, recorded))
        return reply

    def _record(self, recorded: RecordedRequest, build: Build) -> Parts:
        del self._unanswered[recorded]
        parts = build()
        recorded.record_response(parts)
        return parts

    def closing_parts(self, error: ProtocolError) -> Parts:
        return self._inner.closing_parts(error)

    def describe(self) -> ConnectionDetails:
        return self._inner.describe()

    def closed(self) -> None:
        self._on_event(f"{self._where}: disconnected")
        for recorded in self._unanswered:
            recorded.end = "not answered: the connection ended first"
        self._unanswered.clear()
        self._inner.closed()


class RecordedRequest:
    """One request and its outcome."""

    __slots__ = ("_answer", "_request", "_where", "end")

    def __init__(self, where: str, asked: RequestDescription) -> None:
        self._where = where
        self._request = asked
        self._answer: bytes | None = None
        self.end = "no response"

    def record_response(self, parts: Parts) -> None:
        size = sum(map(len, parts))
        self.end = f"response of {size} bytes"
        if size <= _KEPT_BYTES:
            self._answer = b"".join(parts)

    def __str__(self) -> str:
        end = self.end if self._answer is None else self._request.outcome(self._answer)
        return f"{self._where}: {self._request} -> {end}"
