"""Topics in JSON under /api/topics, and the dispatch to the other APIs. Calls the broker's API; knows no socket."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, Protocol
from urllib.parse import unquote

import msgspec

from trimq.core.api.broker import Broker
from trimq.core.partitions.stream import Stream
from trimq.core.partitions.topics import Topic
from trimq.model import Caller, Layout
from trimq.protocols.kafka.names.topic_configs import BrokerLevels
from trimq.server.http.commit_log_topics import CommitLogTopicsApi, topic_summary
from trimq.server.http.responses import (
    JSON,
    DeferredResponse,
    HttpResponse,
    error_response,
    guarded,
    not_allowed,
    not_found,
)
from trimq.server.http.slices import SliceRunner, list_response
from trimq.server.http.topic_settings import own_names, setting_rows

# A topic with more streams is created over several turns of the loop.
_MANY_STREAMS = 25


class NewTopic(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    namespace: str = ""
    streams: int = 1
    settings: dict[str, str] = {}
    home: Literal["partition-log", "commit-log"] = "partition-log"


class ChangedTopic(msgspec.Struct, forbid_unknown_fields=True):
    """Sets the named settings; null resets one to the default of the broker; all others stay."""

    settings: dict[str, str | None]


class OtherApi(Protocol):
    def answer(
        self, caller: Caller, method: str, words: Sequence[str], query: Mapping[str, str], body: bytes
    ) -> HttpResponse | DeferredResponse | None:
        """Returns None if the path belongs to another API."""


class TopicsApi:
    """`others`: APIs of all other paths. `shared`: commit log topics, None if RocketMQ is off."""

    def __init__(
        self,
        broker: Broker,
        others: Sequence[OtherApi] = (),
        shared: CommitLogTopicsApi | None = None,
        slices: SliceRunner | None = None,
    ) -> None:
        self._broker = broker
        self._slices = SliceRunner() if slices is None else slices
        self._others = others
        self._shared = shared

    def answer(
        self, caller: Caller, method: str, path: str, query: Mapping[str, str], body: bytes
    ) -> HttpResponse | DeferredResponse:
        """`path`: as sent; names in it may have any character, percent-encoded. Raises the broker's Refusal."""
        words = [unquote(word) for word in path.split("/")[1:]]
        caller = dataclasses.replace(caller, namespace=query.get("namespace", ""))
        for other in self._others:
            if (found := other.answer(caller, method, words, query, body)) is not None:
                return found
        match words:
            case ["api", "topic-settings"]:
                if method != "GET":
                    return not_allowed(method, "GET, HEAD")
                levels = BrokerLevels.of(self._broker.settings, self._broker.dynamic_settings)
                return HttpResponse.json(200, {"settings": list(setting_rows(levels))})
            case ["api", "topics"]:
                return self._topics(caller, method, body)
            case ["api", "topics", name]:
                return self._topic(caller, method, name, body)
        return not_found(path)

    # -- topics

    def _topics(self, caller: Caller, method: str, body: bytes) -> HttpResponse | DeferredResponse:
        if method == "GET":
            return self._slices.respond("GET /api/topics", list_response("topics", self._list(caller)))
        if method == "POST":
            return self._create_topic(caller, body)
        return not_allowed(method, "GET, HEAD, POST")

    def _list(self, caller: Caller) -> Iterator[dict[str, Any] | None]:
        for topic in self._broker.topics.iterate(caller):
            yield None if topic is None else _topic(topic)
        yield from () if self._shared is None else self._shared.list(caller)

    def _topic(self, caller: Caller, method: str, name: str, body: bytes) -> HttpResponse | DeferredResponse:
        if self._shared is not None and (shared := self._shared.find(caller, name)) is not None:
            return self._shared.answer(caller, method, shared)
        if method == "GET":
            topic = self._broker.topics.get(caller, name)
            steps = list_response("offsets", map(_offsets, list(topic.streams)), _topic(topic))
            return self._slices.respond(f"GET /api/topics/{name}", steps)
        if method == "PATCH":
            return self._change_topic(caller, self._broker.topics.get(caller, name), body)
        if method == "DELETE":
            ticket = self._broker.topics.delete(caller, self._broker.topics.get(caller, name))
            return HttpResponse(204, b"", JSON, ticket)
        return not_allowed(method, "GET, HEAD, PATCH, DELETE")

    def _create_topic(self, caller: Caller, body: bytes) -> HttpResponse | DeferredResponse:
        try:
            asked = msgspec.json.decode(body, type=NewTopic)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            return error_response(400, "BadRequest", f"invalid description of the topic: {error}")
        caller = dataclasses.replace(caller, namespace=asked.namespace)
        if asked.home == Layout.COMMIT_LOG.value:
            return self._create_shared(caller, asked)
        if asked.streams <= _MANY_STREAMS:
            return self._create(caller, asked)
        return DeferredResponse(lambda done: self._prepare(caller, asked, done))

    def _create(self, caller: Caller, asked: NewTopic) -> HttpResponse:
        topic, ticket = self._broker.topics.create(
            caller, asked.name, Layout.PARTITION_LOG, asked.streams, _given(asked)
        )
        return HttpResponse.json(201, _topic(topic), ticket)

    def _prepare(self, caller: Caller, asked: NewTopic, done: Callable[[HttpResponse], None]) -> None:
        """Creates a large topic over several turns of the loop."""

        def prepared() -> None:
            done(guarded("POST /api/topics", lambda: self._create(caller, asked)))

        self._broker.topics.prepare(caller, [(asked.name, asked.streams, _given(asked))], prepared)

    def _create_shared(self, caller: Caller, asked: NewTopic) -> HttpResponse:
        if self._shared is None:
            return error_response(409, "NotServed", "RocketMQ is off: set the address of one of its listeners")
        made, ticket = self._shared.create(caller, asked.name, asked.streams, asked.settings)
        return HttpResponse.json(201, topic_summary(made), ticket)

    def _change_topic(self, caller: Caller, topic: Topic, body: bytes) -> HttpResponse:
        try:
            asked = msgspec.json.decode(body, type=ChangedTopic)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            return error_response(400, "BadRequest", f"invalid description of the change: {error}")
        changed = {**topic.settings, **own_names(asked.settings)}
        settings = {name: value for name, value in changed.items() if value is not None}
        ticket = self._broker.topics.change(caller, topic, settings)
        return HttpResponse.json(200, _topic(topic) | {"settings": settings}, ticket)


def _given(asked: NewTopic) -> dict[str, str]:
    return {name: value for name, value in own_names(asked.settings).items() if value is not None}


def _topic(topic: Topic) -> dict[str, Any]:
    return {
        "name": topic.name.name,
        "namespace": topic.name.namespace,
        "id": str(topic.id),
        "home": topic.layout.value,
        "streams": len(topic.streams),
        "settings": dict(topic.settings),
    }


def _offsets(stream: Stream) -> dict[str, int]:
    return {
        "stream": stream.id.number,
        "start": stream.start,
        "end": stream.end,
        "durable_end": stream.durable_end,
        "readable_end": stream.readable_end,
        "bytes": stream.log.size_bytes,
    }
