"""Administration in JSON under /api/: topics and groups. Asks the broker's verbs; knows no socket."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import unquote

import msgspec

from trimq.core.broker import Broker
from trimq.core.cursors import Cursor
from trimq.core.groups import GroupDescription
from trimq.core.topics import Topic
from trimq.errors import Refusal
from trimq.model import Caller, Home, StreamId
from trimq.server.http_codes import status_of
from trimq.storage.passes import Ticket

JSON = "application/json"


class Answer(NamedTuple):
    """With a ticket, it is true only once the ticket's pass is durable. `allow`: the methods that would have been
    served, when the one that was used is not."""

    status: int
    body: bytes
    content_type: str
    ticket: Ticket | None = None
    allow: str = ""

    @classmethod
    def text(cls, status: int, text: str) -> Answer:
        return cls(status, text.encode(), "text/plain; charset=utf-8")

    @classmethod
    def json(cls, status: int, value: object, ticket: Ticket | None = None) -> Answer:
        return cls(status, msgspec.json.encode(value), JSON, ticket)


def refusal_answer(refusal: Refusal) -> Answer:
    return Answer.json(status_of(refusal), {"error": type(refusal).__name__, "message": str(refusal)})


def mistake_answer(status: int, error: str, message: str) -> Answer:
    """As a refusal, for what never reached the broker."""
    return Answer.json(status, {"error": error, "message": message})


def not_allowed(method: str, allow: str) -> Answer:
    return mistake_answer(405, "MethodNotAllowed", f"{method} is not served here, only {allow}")._replace(allow=allow)


def not_found(path: str) -> Answer:
    return mistake_answer(404, "NotFound", f"there is nothing at {path}")


class NewTopic(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    namespace: str = ""
    streams: int = 1
    settings: dict[str, str] = {}


class ChangedTopic(msgspec.Struct, forbid_unknown_fields=True):
    """What is named is set; null gives back the broker's value; the rest stays."""

    settings: dict[str, str | None]


class Api:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def answer(self, caller: Caller, method: str, path: str, query: Mapping[str, str], body: bytes) -> Answer:
        """`path` as it was sent: a name in it may hold any character, percent-encoded. Refusal: the broker's no."""
        words = [unquote(word) for word in path.split("/")[1:]]
        caller = dataclasses.replace(caller, namespace=query.get("namespace", ""))
        match words:
            case ["api", "topics"]:
                return self._topics(caller, method, body)
            case ["api", "topics", name]:
                return self._topic(caller, method, name, body)
            case ["api", "groups"] if method == "GET":
                return Answer.json(200, {"groups": [_group(group) for group in self._broker.membership.groups(caller)]})
            case ["api", "groups", name] if method == "GET":
                return self._describe_group(caller, name)
            case ["api", "groups"] | ["api", "groups", _]:
                return not_allowed(method, "GET, HEAD")
        return not_found(path)

    # -- topics

    def _topics(self, caller: Caller, method: str, body: bytes) -> Answer:
        if method == "GET":
            return Answer.json(200, {"topics": [_topic(topic) for topic in self._broker.topics(caller)]})
        if method == "POST":
            return self._create_topic(caller, body)
        return not_allowed(method, "GET, HEAD, POST")

    def _topic(self, caller: Caller, method: str, name: str, body: bytes) -> Answer:
        if method == "GET":
            return Answer.json(200, _described(self._broker.topic(caller, name)))
        if method == "PATCH":
            return self._change_topic(caller, self._broker.topic(caller, name), body)
        if method == "DELETE":
            ticket = self._broker.delete_topic(caller, self._broker.topic(caller, name))
            return Answer(204, b"", JSON, ticket)
        return not_allowed(method, "GET, HEAD, PATCH, DELETE")

    def _create_topic(self, caller: Caller, body: bytes) -> Answer:
        try:
            asked = msgspec.json.decode(body, type=NewTopic)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            return mistake_answer(400, "BadRequest", f"the topic is not described as it should be: {error}")
        caller = dataclasses.replace(caller, namespace=asked.namespace)
        topic, ticket = self._broker.create_topic(caller, asked.name, Home.PARTITION_LOG, asked.streams, asked.settings)
        return Answer.json(201, _topic(topic), ticket)

    def _change_topic(self, caller: Caller, topic: Topic, body: bytes) -> Answer:
        try:
            asked = msgspec.json.decode(body, type=ChangedTopic)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            return mistake_answer(400, "BadRequest", f"the change is not described as it should be: {error}")
        changed = {**topic.settings, **asked.settings}
        settings = {name: value for name, value in changed.items() if value is not None}
        ticket = self._broker.change_topic(caller, topic, settings)
        return Answer.json(200, _topic(topic) | {"settings": settings}, ticket)

    # -- groups

    def _describe_group(self, caller: Caller, name: str) -> Answer:
        group = self._broker.membership.describe(caller, name)
        members = [
            {"id": member.id, "instance": member.instance, "client_id": member.client_id, "host": member.host}
            for member in group.members
        ]
        cursors, ticket = self._broker.membership.cursors(caller, name)
        rows = [row for at, cursor in cursors.items() if (row := self._cursor(caller, at, cursor)) is not None]
        return Answer.json(200, _group(group) | {"members": members, "cursors": rows}, ticket)

    def _cursor(self, caller: Caller, at: StreamId, cursor: Cursor) -> dict[str, Any] | None:
        """None: the topic is being deleted, and the cursor goes with it."""
        try:
            topic = self._broker.topic_by_id(caller, at.topic)
            end = topic.stream(at.number).readable_end
        except Refusal:
            return None
        return {
            "topic": topic.name.name,
            "stream": at.number,
            "offset": cursor.offset,
            "end": end,
            "lag": max(end - cursor.offset, 0),
        }


def _group(group: GroupDescription) -> dict[str, Any]:
    return {
        "name": group.name,
        "protocol": group.protocol_type,
        "state": group.state.value,
        "members": len(group.members),
    }


def _topic(topic: Topic) -> dict[str, Any]:
    return {
        "name": topic.name.name,
        "namespace": topic.name.namespace,
        "id": str(topic.id),
        "home": topic.home.value,
        "streams": len(topic.streams),
        "settings": dict(topic.settings),
    }


def _described(topic: Topic) -> dict[str, Any]:
    offsets = [
        {
            "stream": stream.id.number,
            "start": stream.start,
            "end": stream.end,
            "durable_end": stream.durable_end,
            "readable_end": stream.readable_end,
            "bytes": stream.log.size_bytes,
        }
        for stream in topic.streams
    ]
    return _topic(topic) | {"offsets": offsets}
