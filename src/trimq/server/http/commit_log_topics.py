"""Topics that share one log (RocketMQ's) and their groups, for the administration in JSON. Asks the broker's verbs;
what is served of them under which path is `api`'s and `groups_api`'s."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from trimq.core.api.commit_log import Sharing
from trimq.core.commit_log.groups import SharedGroup
from trimq.core.commit_log.topics import SharedDefinition, SharedTopic
from trimq.errors import InvalidCount, InvalidSetting
from trimq.model import Caller
from trimq.server.http.responses import JSON, Answer, not_allowed
from trimq.storage.group_commit.passes import Ticket

MESSAGE_TYPE = "message.type"
MESSAGE_TYPES = ("NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED")


class SharedTopicsApi:
    """`is_own`: names of topics that the broker has for itself, which are not listed and not to be deleted here."""

    def __init__(self, sharing: Sharing, is_own: Callable[[str], bool]) -> None:
        self._sharing = sharing
        self.is_own = is_own

    def list(self, caller: Caller) -> list[dict[str, Any]]:
        return [shown(topic) for topic in self._sharing.topics(caller) if not self.is_own(topic.name.name)]

    def find(self, caller: Caller, name: str) -> SharedTopic | None:
        return None if self.is_own(name) else self._sharing.find(caller, name)

    def create(
        self, caller: Caller, name: str, streams: int, settings: Mapping[str, str]
    ) -> tuple[SharedTopic, Ticket]:
        if streams < 1:
            raise InvalidCount(f"a topic has at least one stream, not {streams}")
        self._sharing.check_name(name)
        definition = SharedDefinition(caller.namespace, name, streams, streams, attributes=_attributes(settings))
        return self._sharing.create(caller, definition)

    def answer(self, caller: Caller, method: str, topic: SharedTopic) -> Answer:
        if method == "GET":
            return Answer.json(200, described(topic))
        if method == "DELETE":
            return Answer(204, b"", JSON, self._sharing.delete(caller, topic))
        return not_allowed(method, "GET, HEAD, DELETE")

    def define_group(self, caller: Caller, name: str, is_orderly: bool, retry_limit: int) -> Ticket:
        return self._sharing.define_group(caller, SharedGroup(name, is_orderly=is_orderly, retry_limit=retry_limit))


def _attributes(settings: Mapping[str, str]) -> dict[str, str]:
    for name, value in settings.items():
        if name != MESSAGE_TYPE:
            raise InvalidSetting(name, f"the only setting of such a topic is {MESSAGE_TYPE}")
        if value not in MESSAGE_TYPES:
            raise InvalidSetting(name, f"expected one of {', '.join(MESSAGE_TYPES)}, got {value!r}")
    return dict(settings)


def shown(topic: SharedTopic) -> dict[str, Any]:
    definition = topic.definition
    return {
        "name": topic.name.name,
        "namespace": topic.name.namespace,
        "id": str(topic.id),
        "home": "commit-log",
        "streams": max(definition.read_streams, definition.write_streams),
        "settings": dict(definition.attributes),
    }


def described(topic: SharedTopic) -> dict[str, Any]:
    """Of its bytes nobody knows: they lie among those of all other topics."""
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
    return shown(topic) | {"offsets": offsets}
