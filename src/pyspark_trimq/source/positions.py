"""How far a query is: an offset for each stream, and the ids of the topics, by which one that was deleted and made anew
is told from the old one. What of it is lost, and what is left to read between two positions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from pyspark_trimq.broker.client import Ends, Range, StreamKey
from pyspark_trimq.mistakes import Lost, Mistake

Progress = dict[StreamKey, int]
"""How far each stream is read."""

# Beside the topics, whose names are not empty.
_IDS = ""
_GO_ON = "with failOnDataLoss=false the query goes on without them"


class Position(NamedTuple):
    """`ids`: of topics, as they were when this was written; of none where there were no ids."""

    offsets: Progress
    ids: Mapping[str, str]

    @property
    def topics(self) -> set[str]:
        return {key.topic for key in self.offsets}

    def is_of(self, topic: str, id: str) -> bool:
        """Whether the topic of this id can be the one that is meant here."""
        return id in ("", self.ids.get(topic, id))


NOWHERE = Position({}, {})


def ids_of(ends: Mapping[StreamKey, Ends]) -> dict[str, str]:
    return {key.topic: each.id for key, each in ends.items() if each.id}


def topic_is_gone(topic: str) -> Lost:
    return Lost(f"the topic {topic!r} is gone; with failOnDataLoss=false the query goes on without it")


def resume(begun: Position, ends: Mapping[StreamKey, Ends], fails_on_loss: bool) -> Progress:
    """Where to go on in each stream that is there: new ones from their beginning. Lost: of a topic that was made anew,
    or ends before what is to be read next, unless that is not to fail."""
    found = {}
    for key, now in ends.items():
        at = begun.offsets.get(key)
        is_same = begun.is_of(key.topic, now.id)
        if fails_on_loss and key.topic in begun.topics and not is_same:
            raise Lost(
                f"the topic {key.topic!r} was deleted and made anew, and what it had may not have been read; "
                "with failOnDataLoss=false the query reads the new one from its beginning"
            )
        if at is None or not is_same:
            found[key] = now.start
        elif at <= now.last:
            found[key] = at
        elif fails_on_loss:
            raise _is_lost(f"message {at} of {key.topic} {key.number} was to be read next", now)
        else:
            # Without ids nobody knows whether it is the same topic: read twice is better than never.
            found[key] = now.end if now.id and key.topic in begun.ids else now.start
    return found


def _is_lost(what: str, ends: Ends | None) -> Lost:
    has = "it is gone" if ends is None else f"it has messages from {ends.start} to {ends.last}"
    return Lost(f"{what}, but {has}; {_GO_ON}")


def check_gone(begun: Position, before: Mapping[StreamKey, Ends], ends: Mapping[StreamKey, Ends]) -> None:
    """Lost: of a stream that was seen before and is gone there was something left to read."""
    for key, then in before.items():
        if key not in ends and begun.is_of(key.topic, then.id) and begun.offsets.get(key, then.start) < then.end:
            raise _is_lost(
                f"message {begun.offsets.get(key, then.start)} of {key.topic} {key.number} was to be read next", None
            )


def planned(start: Position, end: Position) -> list[Range]:
    """What lies between, by these two alone: so that a batch that is run again has the same tasks, in which a sink
    finds its tokens, whatever has been lost meanwhile. New streams count from 0."""
    found = []
    for key, until in end.offsets.items():
        is_same = start.is_of(key.topic, end.ids.get(key.topic, ""))
        begin = start.offsets.get(key, 0) if is_same else 0
        if begin < until:
            found.append(Range(key, begin, until))
    return found


def check_there(whole: list[Range], start: Position, end: Position, ends: Mapping[StreamKey, Ends]) -> None:
    """Lost: not all of this is there any more."""
    for key, begin, until in whole:
        now = _same(key, end, ends)
        is_new = key not in start.offsets or not start.is_of(key.topic, end.ids.get(key.topic, ""))
        is_cut = now is not None and begin < now.start and not (is_new or now.gives_away)
        if now is None or until > now.last or is_cut:
            raise _is_lost(f"messages {begin} to {until} of {key.topic} {key.number} were to be read", now)


def still_there(part: Range, end: Position, ends: Mapping[StreamKey, Ends]) -> Range:
    """What is left of it, which may be nothing."""
    now = _same(part.key, end, ends)
    if now is None:
        return Range(part.key, part.start, part.start)
    begin = max(part.start, now.start)
    return Range(part.key, begin, max(min(part.end, now.last), begin))


def _same(key: StreamKey, end: Position, ends: Mapping[StreamKey, Ends]) -> Ends | None:
    """The stream as it is now; None: it is gone, or belongs to another topic of this name."""
    now = ends.get(key)
    return now if now is not None and end.is_of(key.topic, now.id) else None


def to_json(position: Position) -> dict[str, Any]:
    """As Spark's Kafka source writes offsets, and the ids."""
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
        raise Mistake(f"the checkpoint holds {written!r}, which is no offset of this source: use another one") from None
