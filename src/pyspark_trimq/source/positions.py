"""Positions of a query: an offset for each stream, and the topic ids, which reveal that a topic was deleted and created
again. Computes the ranges between two positions and detects lost messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from pyspark_trimq.broker.client import OffsetRange, StreamBounds, StreamKey
from pyspark_trimq.mistakes import Lost, Mistake

OffsetsByStream = dict[StreamKey, int]
"""Next offset to read of each stream."""

# JSON key of the topic ids; no topic has an empty name.
_IDS = ""
_HOW_TO_CONTINUE = "with failOnDataLoss=false the query continues without them"


class Position(NamedTuple):
    """`ids` are the topic ids at the time of writing, for topics that had one."""

    offsets: OffsetsByStream
    ids: Mapping[str, str]

    @property
    def topics(self) -> set[str]:
        return {key.topic for key in self.offsets}

    def is_same_topic(self, topic: str, id: str) -> bool:
        """Returns False if the topic was recreated since, so that its id differs. Without ids returns True."""
        return id in ("", self.ids.get(topic, id))


NO_POSITION = Position({}, {})


def ids_of(ends: Mapping[StreamKey, StreamBounds]) -> dict[str, str]:
    return {key.topic: each.id for key, each in ends.items() if each.id}


def topic_deleted_error(topic: str) -> Lost:
    return Lost(f"the topic {topic!r} was deleted; with failOnDataLoss=false the query continues without it")


def resume(start_position: Position, ends: Mapping[StreamKey, StreamBounds], fails_on_loss: bool) -> OffsetsByStream:
    """Returns the next offset to read of each existing stream; new streams start at their beginning. With
    `fails_on_loss` raises Lost if a topic was recreated, or ends before the next offset."""
    found = {}
    for key, now in ends.items():
        at = start_position.offsets.get(key)
        is_same = start_position.is_same_topic(key.topic, now.id)
        if fails_on_loss and key.topic in start_position.topics and not is_same:
            raise Lost(
                f"the topic {key.topic!r} was deleted and created again, and unread messages may be lost; "
                "with failOnDataLoss=false the query reads the new topic from its beginning"
            )
        if at is None or not is_same:
            found[key] = now.start
        elif at <= now.last:
            found[key] = at
        elif fails_on_loss:
            raise _data_lost_error(f"message {at} of {key.topic} {key.number} was to be read next", now)
        else:
            # Without ids the topic may have been recreated. Then read from the start: duplicates are better than loss.
            found[key] = now.end if now.id and key.topic in start_position.ids else now.start
    return found


def _data_lost_error(what: str, ends: StreamBounds | None) -> Lost:
    has = "it was deleted" if ends is None else f"it has messages from {ends.start} to {ends.last}"
    return Lost(f"{what}, but {has}; {_HOW_TO_CONTINUE}")


def check_deleted_streams(
    start_position: Position, before: Mapping[StreamKey, StreamBounds], ends: Mapping[StreamKey, StreamBounds]
) -> None:
    """Raises Lost if a stream that existed `before` was deleted with unread messages."""
    for key, then in before.items():
        if (
            key not in ends
            and start_position.is_same_topic(key.topic, then.id)
            and start_position.offsets.get(key, then.start) < then.end
        ):
            raise _data_lost_error(
                f"message {start_position.offsets.get(key, then.start)} of {key.topic} {key.number} "
                "was to be read next",
                None,
            )


def planned(start: Position, end: Position) -> list[OffsetRange]:
    """Returns the ranges between two positions. Depends on nothing else, so that a repeated batch has the same tasks
    even if messages were lost meanwhile, and the sink finds its tokens. New streams start at 0."""
    found = []
    for key, until in end.offsets.items():
        is_same = start.is_same_topic(key.topic, end.ids.get(key.topic, ""))
        begin = start.offsets.get(key, 0) if is_same else 0
        if begin < until:
            found.append(OffsetRange(key, begin, until))
    return found


def check_ranges_available(
    whole: list[OffsetRange], start: Position, end: Position, ends: Mapping[StreamKey, StreamBounds]
) -> None:
    """Raises Lost if the broker has not all messages of these ranges any more."""
    for key, begin, until in whole:
        now = _current_bounds(key, end, ends)
        is_new = key not in start.offsets or not start.is_same_topic(key.topic, end.ids.get(key.topic, ""))
        is_cut = now is not None and begin < now.start and not (is_new or now.deletes_on_ack)
        if now is None or until > now.last or is_cut:
            raise _data_lost_error(f"messages {begin} to {until} of {key.topic} {key.number} were to be read", now)


def clip_to_available(part: OffsetRange, end: Position, ends: Mapping[StreamKey, StreamBounds]) -> OffsetRange:
    """Returns the part of the range that the broker still has, which may be empty."""
    now = _current_bounds(part.key, end, ends)
    if now is None:
        return OffsetRange(part.key, part.start, part.start)
    begin = max(part.start, now.start)
    return OffsetRange(part.key, begin, max(min(part.end, now.last), begin))


def _current_bounds(key: StreamKey, end: Position, ends: Mapping[StreamKey, StreamBounds]) -> StreamBounds | None:
    """Returns the current offsets of the stream, or None if the topic was deleted or recreated."""
    now = ends.get(key)
    return now if now is not None and end.is_same_topic(key.topic, now.id) else None


def to_json(position: Position) -> dict[str, Any]:
    """Returns offsets in the JSON form of Spark's Kafka source, plus the topic ids."""
    found: dict[str, Any] = {}
    for key, offset in position.offsets.items():
        found.setdefault(key.topic, {})[str(key.number)] = offset
    if position.ids:
        found[_IDS] = dict(position.ids)
    return found


def from_json(written: Mapping[str, Any]) -> Position:
    try:
        offsets = {
            StreamKey(topic, int(number)): int(offset)
            for topic, streams in written.items()
            if topic != _IDS
            for number, offset in streams.items()
        }
        return Position(offsets, {topic: str(id) for topic, id in written.get(_IDS, {}).items()})
    except (AttributeError, TypeError, ValueError):
        raise Mistake(
            f"the checkpoint holds {written!r}, which is not an offset of this source: use another checkpoint"
        ) from None
