"""Deduplication: ids of the messages that are ready in one queue, and the positions of these messages. Knows neither
publishers nor consumers."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import NamedTuple

from trimq.core.queues.backlog import Backlog
from trimq.errors import DamagedSegment
from trimq.formats.amqp_content.content import Content
from trimq.formats.amqp_content.field_tables import BadField
from trimq.formats.amqp_content.property_list import FLAGS, flags_of, read_headers, read_property

_HEADER = "x-deduplication-header"
_DIGEST_BYTES = 16


class QueuedPosition(NamedTuple):
    backlog: Backlog
    offset: int


class QueuedMessageIds:
    """Takes about a hundred bytes of memory for each message that has an id."""

    def __init__(self) -> None:
        self._places: dict[bytes, QueuedPosition] = {}

    def __len__(self) -> int:
        return len(self._places)

    def find(self, content: Content) -> QueuedPosition | None:
        """Returns the position of a ready message with the same id."""
        id = deduplication_id(content)
        return None if id is None else self._places.get(id)

    def add(self, content: Content, backlog: Backlog, offset: int) -> None:
        id = deduplication_id(content)
        if id is not None:
            self._places.setdefault(id, QueuedPosition(backlog, offset))

    def forget(self, content: Content, offset: int) -> None:
        """Forgets a message that is not ready any more, unless another message has its id now."""
        id = deduplication_id(content)
        if id is not None and (place := self._places.get(id)) is not None and place.offset == offset:
            del self._places[id]

    def retain(self, is_waiting: Callable[[QueuedPosition], bool]) -> None:
        self._places = {id: place for id, place in self._places.items() if is_waiting(place)}

    def add_backlog(self, backlog: Backlog, out: set[int]) -> None:
        """Adds the messages of a backlog, readable or not, after a start or a change of policy; `out` are offsets to
        skip. Reads the whole backlog."""
        for segment in backlog.log.segments:
            offset = segment.next_live(segment.base)
            while offset < segment.end:
                try:
                    if offset not in out:
                        self.add(backlog.log.peek(offset).content, backlog, offset)
                except DamagedSegment:
                    pass  # it is never delivered either
                offset = segment.next_live(offset + 1)


def deduplication_id(content: Content) -> bytes | None:
    """Returns a digest of the id of a message: the `x-deduplication-header` of RabbitMQ's plugin, or `message-id`."""
    header = content.header
    flags = flags_of(header)
    id: object = None
    try:
        if flags & FLAGS["headers"] and _HEADER.encode() in header:
            id = read_headers(header).get(_HEADER)
        if id is None and flags & FLAGS["message_id"]:
            id = read_property(header, "message_id")
    except BadField:
        return None
    if id is None or id == "":
        return None
    return hashlib.blake2b(repr(id).encode("utf-8", "surrogatepass"), digest_size=_DIGEST_BYTES).digest()
