"""Recall of delayed messages: the handle that identifies a message, and the recalls since the start. Knows no queue and
no timer."""

from __future__ import annotations

import base64
import binascii

from trimq.errors import Refusal
from trimq.formats.rocketmq_unit.dead_letters import REAL_TOPIC
from trimq.formats.rocketmq_unit.properties import UNIQUE_KEY, write_properties
from trimq.formats.rocketmq_unit.schedule import TIMER_OUT_MS, parse_time_ms
from trimq.protocols.rocketmq.schedule.batch_delivery import RECALLED
from trimq.protocols.rocketmq.schedule.restart_scan import recall_marker
from trimq.protocols.rocketmq.wire.codes import RemotingRefusal, ResponseCode


def write_handle(broker: str, topic: str, due_ms: int, unique: str) -> str:
    """Returns the handle with which a client can recall a message due at this time."""
    return base64.urlsafe_b64encode(f"v1 {topic} {broker} {due_ms} {unique}".encode()).decode()


def read_handle(handle: str, broker: str, topic: str, now_ms: int) -> tuple[int, str]:
    """Returns the due time and unique key of the message. Raises RemotingRefusal if the handle is invalid for this
    topic, or the message is due already."""
    try:
        version, name, where, due, unique = base64.urlsafe_b64decode(handle).decode().split(" ", 4)
    except (binascii.Error, ValueError):
        raise _invalid() from None
    if (version, name, where) != ("v1", topic, broker) or not unique:
        raise _invalid()
    if (due_ms := parse_time_ms(due)) <= now_ms:
        raise RemotingRefusal(ResponseCode.ILLEGAL_OPERATION, "recall failed, timestamp invalid")
    return due_ms, unique


def write_recall_marker(topic: str, unique: str, due_ms: int) -> tuple[str, bytes]:
    """Returns the marker of a recalled message, and the properties of the message that stores it."""
    marker = recall_marker(topic, unique)
    properties = {UNIQUE_KEY: unique, RECALLED: marker, TIMER_OUT_MS: str(due_ms), REAL_TOPIC: topic}
    try:
        return marker, write_properties(properties)
    except ValueError:
        raise _invalid() from None


def _invalid() -> RemotingRefusal:
    return RemotingRefusal(ResponseCode.ILLEGAL_OPERATION, "recall handle is invalid")


class RecallIndex:
    """`markers`: offset in the timer wheel topic by marker of the recalled message."""

    def __init__(self) -> None:
        self.markers: dict[str, int] = {}
        self._due_markers: list[tuple[str, int]] = []

    def note(self, marker: str, offset: int, refusal: Refusal | None) -> None:
        """Adds a marker when its append is durable; ignores it when refused."""
        if refusal is None:
            self.markers[marker] = max(offset, self.markers.get(marker, offset))

    def has(self, topic: str, unique: str, offset: int) -> bool:
        """Whether the message that waits at `offset` was recalled later."""
        return self.markers.get(recall_marker(topic, unique), -1) > offset

    def spend(self, marker: str, offset: int, has_delayed: bool) -> None:
        """Forgets a marker that is due: the recalled message was due no later. Keeps it while any message is retried
        (`has_delayed`), since that may be the recalled one."""
        if self.markers.get(marker) == offset:
            self._due_markers.append((marker, offset))
        if has_delayed:
            return
        for spent, at in self._due_markers:
            if self.markers.get(spent) == at:
                del self.markers[spent]
        self._due_markers.clear()
