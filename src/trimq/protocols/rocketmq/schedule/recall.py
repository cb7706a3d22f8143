"""Taking a message back before its time: the handle that names it, and what was taken back since the start. Knows no
queue and no timer."""

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
    """What recalls a message that waits until then."""
    return base64.urlsafe_b64encode(f"v1 {topic} {broker} {due_ms} {unique}".encode()).decode()


def read_handle(handle: str, broker: str, topic: str, now_ms: int) -> tuple[int, str]:
    """When the message is due, and its unique key. Failure: it is no handle of this topic, or too late."""
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
    """What takes the message back, and the properties of the message that says so."""
    marker = recall_marker(topic, unique)
    properties = {UNIQUE_KEY: unique, RECALLED: marker, TIMER_OUT_MS: str(due_ms), REAL_TOPIC: topic}
    try:
        return marker, write_properties(properties)
    except ValueError:
        raise _invalid() from None


def _invalid() -> RemotingRefusal:
    return RemotingRefusal(ResponseCode.ILLEGAL_OPERATION, "recall handle is invalid")


class RecallIndex:
    """`markers`: what takes a message back, and where in the wheel that is said."""

    def __init__(self) -> None:
        self.markers: dict[str, int] = {}
        self._due_markers: list[tuple[str, int]] = []

    def note(self, marker: str, offset: int, refusal: Refusal | None) -> None:
        """It is durable, or was refused."""
        if refusal is None:
            self.markers[marker] = max(offset, self.markers.get(marker, offset))

    def has(self, topic: str, unique: str, offset: int) -> bool:
        """Whether a message that waits at `offset` was taken back."""
        return self.markers.get(recall_marker(topic, unique), -1) > offset

    def spend(self, marker: str, offset: int, has_delayed: bool) -> None:
        """The word is due, and whatever it took back was due no later: it is forgotten. But not while anything is tried
        again (`has_delayed`), which may be just that."""
        if self.markers.get(marker) == offset:
            self._due_markers.append((marker, offset))
        if has_delayed:
            return
        for spent, at in self._due_markers:
            if self.markers.get(spent) == at:
                del self.markers[spent]
        self._due_markers.clear()
