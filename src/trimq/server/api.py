"""Administration in JSON under /api/: topics and groups. Asks the broker's verbs; knows no socket."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from trimq.core.broker import Broker
from trimq.core.topics import Topic
from trimq.errors import Refusal
from trimq.model import Caller, Home
from trimq.server.http_codes import status_of
from trimq.storage.passes import Ticket

JSON = "application/json"


class Answer(NamedTuple):
    """With a ticket, it is true only once the ticket's pass is durable."""

    status: int
    body: bytes
    content_type: str
    ticket: Ticket | None = None

    @classmethod
    def text(cls, status: int, text: str) -> Answer:
        return cls(status, text.encode(), "text/plain; charset=utf-8")

    @classmethod
    def json(cls, status: int, value: object, ticket: Ticket | None = None) -> Answer:
        return cls(status, msgspec.json.encode(value), JSON, ticket)


def refusal_answer(refusal: Refusal) -> Answer:
    return Answer.json(status_of(refusal), {"error": type(refusal).__name__, "message": str(refusal)})


def _mistake(status: int, message: str) -> Answer:
    return Answer.json(status, {"error": "BadRequest", "message": message})


class NewTopic(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    namespace: str = ""
    streams: int = 1
    settings: dict[str, str] = {}


class Api:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def answer(self, caller: Caller, method: str, path: str, query: Mapping[str, str], body: bytes) -> Answer:
        """Refusal: the broker's no."""
        words = path.strip("/").split("/", 2)
        caller = dataclasses.replace(caller, namespace=query.get("namespace", ""))
        match (method, *words):
            case ("GET", "api", "topics"):
                return Answer.json(200, {"topics": [_topic(topic) for topic in self._broker.topics(caller)]})
            case ("POST", "api", "topics"):
                return self._create_topic(caller, body)
            case ("GET", "api", "topics", name):
                return Answer.json(200, _described(self._broker.topic(caller, name)))
            case ("DELETE", "api", "topics", name):
                ticket = self._broker.delete_topic(caller, self._broker.topic(caller, name))
                return Answer(204, b"", JSON, ticket)
            case ("GET", "api", "groups"):
                return Answer.json(200, {"groups": [self._group(caller, name) for name in self._broker.groups(caller)]})
            case ("GET", "api", "groups", name):
                return self._describe_group(caller, name)
            case (_, "api", "topics" | "groups", *_):
                return _mistake(405, f"{method} is not served here")
        return _mistake(404, f"there is nothing at {path}")

    def _create_topic(self, caller: Caller, body: bytes) -> Answer:
        try:
            asked = msgspec.json.decode(body, type=NewTopic)
        except msgspec.DecodeError as error:
            return _mistake(400, f"the topic is not described as it should be: {error}")
        caller = dataclasses.replace(caller, namespace=asked.namespace)
        topic, ticket = self._broker.create_topic(caller, asked.name, Home.PARTITION_LOG, asked.streams, asked.settings)
        return Answer.json(201, _topic(topic), ticket)

    def _group(self, caller: Caller, name: str) -> dict[str, Any]:
        # Members join with the protocols that have groups; what has only cursors is empty.
        return {"name": name, "protocol": "", "state": "empty", "members": 0}

    def _describe_group(self, caller: Caller, name: str) -> Answer:
        cursors = self._broker.cursors(caller, name)
        if not cursors:
            return Answer.json(404, {"error": "UnknownGroup", "message": f"there is no group {name}"})
        rows = []
        for stream_id, cursor in cursors.items():
            topic = self._broker.topic_by_id(caller, stream_id.topic)
            end = topic.stream(stream_id.number).readable_end
            rows.append(
                {
                    "topic": topic.name.name,
                    "stream": stream_id.number,
                    "offset": cursor.offset,
                    "end": end,
                    "lag": max(end - cursor.offset, 0),
                }
            )
        return Answer.json(200, self._group(caller, name) | {"members": [], "cursors": rows})


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
