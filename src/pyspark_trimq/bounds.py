"""From what is asked for to offsets: which streams, from where, up to where, and how that is divided among tasks."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import pairwise

from pyspark_trimq.mistakes import Lost, Mistake
from pyspark_trimq.options import EARLIEST, LATEST, Bound, SourceOptions
from pyspark_trimq.ports import Ends, Port, Range, StreamKey

Progress = dict[StreamKey, int]
"""How far each stream is read."""

_EARLIEST_OFFSET = -2
_LATEST_OFFSET = -1


def find_ends(port: Port, options: SourceOptions) -> dict[StreamKey, Ends]:
    """The streams that are asked for, and where they begin and end now."""
    if options.assigned is not None:
        return _assigned(port, options.assigned)
    if options.pattern is not None:
        topics = [name for name in port.topics() if re.fullmatch(options.pattern, name)]
    else:
        topics = list(options.subscribe or ())
    return {StreamKey(topic, number): ends for topic in topics for number, ends in port.ends(topic).items()}


def _assigned(port: Port, assigned: Mapping[str, list[int]]) -> dict[StreamKey, Ends]:
    found = {}
    for topic, numbers in assigned.items():
        known = port.ends(topic)
        for number in numbers:
            if number not in known:
                raise Mistake(f"the topic {topic!r} has no partition {number}; it has {', '.join(map(str, known))}")
            found[StreamKey(topic, number)] = known[number]
    return found


def find_bound(
    port: Port, ends: Mapping[StreamKey, Ends], bound: Bound | None, time_ms: int | None, default: str, option: str
) -> Progress:
    """An offset for each stream. A time goes before offsets."""
    if time_ms is not None:
        by_topic = {topic: port.at_time(topic, time_ms) for topic in {key.topic for key in ends}}
        return {key: by_topic[key.topic][key.number] for key in ends}
    chosen = bound if bound is not None else default
    if isinstance(chosen, str):
        return {key: _word(chosen, each) for key, each in ends.items()}
    found = {}
    for key, each in ends.items():
        if key.number not in chosen.get(key.topic, {}):
            raise Mistake(f"{option} names no offset for partition {key.number} of {key.topic!r}; name all of them")
        found[key] = _offset(chosen[key.topic][key.number], each)
    return found


def _word(word: str, ends: Ends) -> int:
    return ends.start if word == EARLIEST else ends.end


def _offset(offset: int, ends: Ends) -> int:
    if offset == _EARLIEST_OFFSET:
        return ends.start
    return ends.end if offset == _LATEST_OFFSET else offset


def check_batch(options: SourceOptions) -> None:
    if options.starting == LATEST:
        raise Mistake("startingOffsets is 'latest', where nothing is left for a batch: give earliest or offsets")
    if options.ending == EARLIEST:
        raise Mistake("endingOffsets is 'earliest', where nothing is left for a batch: give latest or offsets")


def ranges(start: Progress, end: Progress, ends: Mapping[StreamKey, Ends], fails_on_loss: bool) -> list[Range]:
    """What lies between. Lost: some of it is gone, unless that is not to fail."""
    found = []
    for key, until in end.items():
        known = ends.get(key)
        begin = start.get(key, known.start if known is not None else 0)
        if known is None or begin < known.start or until > known.end:
            begin, until = _still_there(key, begin, until, known, fails_on_loss)
        if begin < until:
            found.append(Range(key, begin, until))
    return found


def _still_there(key: StreamKey, begin: int, until: int, ends: Ends | None, fails_on_loss: bool) -> tuple[int, int]:
    if begin >= until and ends is not None:
        return begin, begin
    if fails_on_loss:
        has = "it is gone" if ends is None else f"it has messages from {ends.start} to {ends.end}"
        raise Lost(
            f"messages {begin} to {until} of {key.topic} {key.number} were to be read, but {has}; "
            "with failOnDataLoss=false the query goes on without them"
        )
    return (begin, begin) if ends is None else (max(begin, ends.start), min(until, ends.end))


def split(whole: list[Range], at_least: int | None) -> list[Range]:
    """So many ranges at least, by dividing the longest most, unless there are fewer messages."""
    total = sum(part.end - part.start for part in whole)
    if at_least is None or len(whole) >= at_least or not total:
        return whole
    found = []
    for part in whole:
        size = part.end - part.start
        count = min(max(round(size * at_least / total), 1), size)
        cuts = [part.start + size * index // count for index in range(count + 1)]
        found += [Range(part.key, first, last) for first, last in pairwise(cuts)]
    return found


def admit(start: Progress, end: Progress, most: int) -> Progress:
    """So much of what is new, divided among streams by how much is new in each."""
    new = {key: max(until - start.get(key, 0), 0) for key, until in end.items()}
    total = sum(new.values())
    if total <= most:
        return end
    found = {}
    left = most
    for key, size in sorted(new.items(), key=lambda item: item[1]):
        share = min(-(-size * most // total), left)
        left -= share
        found[key] = start.get(key, 0) + share
    return {key: found[key] for key in end}


def to_json(progress: Progress) -> dict[str, dict[str, int]]:
    """As Spark's Kafka source writes offsets."""
    found: dict[str, dict[str, int]] = {}
    for key, offset in progress.items():
        found.setdefault(key.topic, {})[str(key.number)] = offset
    return found


def from_json(offsets: Mapping[str, Mapping[str, int]]) -> Progress:
    try:
        return {
            StreamKey(topic, int(number)): int(offset)
            for topic, streams in offsets.items()
            for number, offset in streams.items()
        }
    except (AttributeError, TypeError, ValueError):
        raise Mistake(f"the checkpoint holds {offsets!r}, which is no offset of this source: use another one") from None
