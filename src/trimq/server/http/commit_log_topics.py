"""Administration of commit log topics (RocketMQ) and their groups in JSON. Calls the commit log API; `topics` and
`groups` define the paths."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from trimq.core.api.commit_log_groups import CommitLogGroupApi
from trimq.core.api.commit_log_topics import CommitLogTopicApi
from trimq.core.commit_log.groups import CommitLogGroup
from trimq.core.commit_log.topics import CommitLogTopic, CommitLogTopicDefinition
from trimq.errors import InvalidCount, InvalidSetting
from trimq.model import Caller
from trimq.server.http.responses import JSON, HttpResponse, not_allowed
from trimq.storage.group_commit.passes import Ticket

MESSAGE_TYPE = "message.type"
MESSAGE_TYPES = ("NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED")


class CommitLogTopicsApi:
    """Commit log topics. `is_system_topic`: tells whether a name is a system topic, which is neither listed nor
    deleted here."""

    def __init__(
        self, topic_api: CommitLogTopicApi, group_api: CommitLogGroupApi, is_system_topic: Callable[[str], bool]
    ) -> None:
        self._topic_api = topic_api
        self._group_api = group_api
        self.is_system_topic = is_system_topic

    def list(self, caller: Caller) -> list[dict[str, Any]]:
        return [
            topic_summary(topic) for topic in self._topic_api.all(caller) if not self.is_system_topic(topic.name.name)
        ]

    def find(self, caller: Caller, name: str) -> CommitLogTopic | None:
        return None if self.is_system_topic(name) else self._topic_api.find(caller, name)

    def create(
        self, caller: Caller, name: str, streams: int, settings: Mapping[str, str]
    ) -> tuple[CommitLogTopic, Ticket]:
        if streams < 1:
            raise InvalidCount(f"a topic needs at least one stream, not {streams}")
        self._topic_api.check_name(name)
        definition = CommitLogTopicDefinition(
            caller.namespace, name, streams, streams, attributes=_attributes(settings)
        )
        return self._topic_api.create(caller, definition)

    def answer(self, caller: Caller, method: str, topic: CommitLogTopic) -> HttpResponse:
        if method == "GET":
            return HttpResponse.json(200, topic_details(topic))
        if method == "DELETE":
            return HttpResponse(204, b"", JSON, self._topic_api.delete(caller, topic))
        return not_allowed(method, "GET, HEAD, DELETE")

    def define_group(self, caller: Caller, name: str, is_orderly: bool, retry_limit: int) -> Ticket:
        return self._group_api.define(caller, CommitLogGroup(name, is_orderly=is_orderly, retry_limit=retry_limit))

    def reset_cursor(self, caller: Caller, group: str, topic: str, number: int, offset: int) -> Ticket:
        found = self._topic_api.get(caller, topic)
        found.stream(number)
        return self._group_api.reset(caller, group, found, number, offset)


def _attributes(settings: Mapping[str, str]) -> dict[str, str]:
    for name, value in settings.items():
        if name != MESSAGE_TYPE:
            raise InvalidSetting(name, f"the only setting of a RocketMQ topic is {MESSAGE_TYPE}")
        if value not in MESSAGE_TYPES:
            raise InvalidSetting(name, f"expected one of {', '.join(MESSAGE_TYPES)}, got {value!r}")
    return dict(settings)


def topic_summary(topic: CommitLogTopic) -> dict[str, Any]:
    definition = topic.definition
    return {
        "name": topic.name.name,
        "namespace": topic.name.namespace,
        "id": str(topic.id),
        "home": "commit-log",
        "streams": max(definition.read_streams, definition.write_streams),
        "settings": dict(definition.attributes),
    }


def topic_details(topic: CommitLogTopic) -> dict[str, Any]:
    """Returns the topic with its offsets. The size in bytes is unknown, since all topics share the commit log."""
    offsets = [
        {
            "stream": stream.id.number,
            "start": stream.start,
            "end": stream.end,
            "durable_end": stream.readable_end,
            "readable_end": stream.readable_end,
            "bytes": None,
        }
        for stream in topic.streams()
    ]
    return topic_summary(topic) | {"offsets": offsets}
