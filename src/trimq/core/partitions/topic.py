"""One topic: its definition and its open streams."""

from __future__ import annotations

from uuid import UUID

import msgspec

from trimq.core.partitions.stream import Stream
from trimq.core.partitions.topic_settings import TopicSettings
from trimq.core.security.access import Resource, ResourceKind
from trimq.errors import UnknownStream
from trimq.model import Layout, TopicName


class TopicDefinition(msgspec.Struct, frozen=True):
    """Topic as stored in the catalogue."""

    namespace: str
    name: str
    home: str
    streams: int
    created_ms: int
    settings: dict[str, str] = {}
    deleted: bool = False


class Topic:
    def __init__(self, id: UUID, definition: TopicDefinition, version: int) -> None:
        self.id = id
        self.name = TopicName(definition.namespace, definition.name)
        self.resource = Resource(ResourceKind.TOPIC, definition.namespace, definition.name)
        self.layout = Layout(definition.home)
        self.created_ms = definition.created_ms
        self.settings: TopicSettings = definition.settings
        self.version = version
        self.streams: list[Stream] = []

    def stream(self, index: int) -> Stream:
        if not 0 <= index < len(self.streams):
            raise UnknownStream(str(self.name), index)
        return self.streams[index]

    def definition(self, *, streams: int | None = None, settings: TopicSettings | None = None) -> TopicDefinition:
        return TopicDefinition(
            namespace=self.name.namespace,
            name=self.name.name,
            home=self.layout.value,
            streams=len(self.streams) if streams is None else streams,
            created_ms=self.created_ms,
            settings=dict(self.settings if settings is None else settings),
        )
