"""Resolves options to offsets: which streams to read, from where to where, and how to divide the range among tasks."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import pairwise

from pyspark_trimq.broker.client import BrokerClient, OffsetRange, StreamBounds, StreamKey
from pyspark_trimq.mistakes import Mistake, TopicMistake
from pyspark_trimq.source.options import EARLIEST, LATEST, Bound, SourceOptions
from pyspark_trimq.source.positions import NO_POSITION, OffsetsByStream, Position, topic_deleted_error

_EARLIEST_OFFSET = -2
_LATEST_OFFSET = -1


def find_ends(
    client: BrokerClient, options: SourceOptions, start_position: Position = NO_POSITION
) -> dict[StreamKey, StreamBounds]:
    """Returns the current offsets of the subscribed streams, without topics deleted since `start_position`. For topics
    that were named, not matched by a pattern: raises TopicMistake if the topic never existed, and Lost if it was
    deleted and `failOnDataLoss` is set."""
    if options.assigned is not None:
        return _assigned(client, options, options.assigned, start_position)
    if options.pattern is not None:
        topics = [name for name in client.topics() if re.fullmatch(options.pattern, name)]
    else:
        topics = list(options.subscribe or ())
    found: dict[StreamKey, StreamBounds] = {}
    for topic in topics:
        try:
            found |= {StreamKey(topic, number): ends for number, ends in client.ends(topic).items()}
        except TopicMistake:
            if options.pattern is None:
                _skip_missing_topic(topic, topic in start_position.topics, options)
    return found


def _skip_missing_topic(topic: str, was_there: bool, options: SourceOptions) -> None:
    """Called while a TopicMistake is handled: raises it again, raises Lost, or returns to skip the topic."""
    if not was_there:
        raise
    if options.fails_on_loss:
        raise topic_deleted_error(topic) from None


def _assigned(
    client: BrokerClient, options: SourceOptions, assigned: Mapping[str, list[int]], start_position: Position
) -> dict[StreamKey, StreamBounds]:
    found: dict[StreamKey, StreamBounds] = {}
    for topic, numbers in assigned.items():
        try:
            known = client.ends(topic)
            for number in numbers:
                if number not in known and StreamKey(topic, number) not in start_position.offsets:
                    raise Mistake(f"the topic {topic!r} has no partition {number}; it has {', '.join(map(str, known))}")
            found |= {StreamKey(topic, number): known[number] for number in numbers if number in known}
        except TopicMistake:
            _skip_missing_topic(topic, topic in start_position.topics, options)
    return found


def find_bound(
    client: BrokerClient,
    ends: Mapping[StreamKey, StreamBounds],
    bound: Bound | None,
    time_ms: int | None,
    default: str,
    option: str,
) -> OffsetsByStream:
    """Returns an offset for each stream. A timestamp takes precedence over offsets."""
    if time_ms is not None:
        by_topic = {topic: client.at_time(topic, time_ms) for topic in {key.topic for key in ends}}
        return {key: by_topic[key.topic][key.number] for key in ends}
    chosen = bound if bound is not None else default
    if isinstance(chosen, str):
        return {key: _named_offset(chosen, each) for key, each in ends.items()}
    for topic, number in [(topic, number) for topic, numbers in chosen.items() for number in numbers]:
        if (topic, number) not in ends:
            raise Mistake(
                f"{option} names partition {number} of {topic!r}, which the query does not read: leave it out"
            )
    found = {}
    for key, each in ends.items():
        if key.number not in chosen.get(key.topic, {}):
            raise Mistake(f"{option} names no offset for partition {key.number} of {key.topic!r}; name all of them")
        found[key] = _resolve_offset(chosen[key.topic][key.number], each)
    return found


def _named_offset(word: str, ends: StreamBounds) -> int:
    return ends.start if word == EARLIEST else ends.end


def _resolve_offset(offset: int, ends: StreamBounds) -> int:
    if offset == _EARLIEST_OFFSET:
        return ends.start
    return ends.end if offset == _LATEST_OFFSET else offset


def check_batch_bounds(options: SourceOptions) -> None:
    if options.starting == LATEST:
        raise Mistake("startingOffsets is 'latest', so that a batch reads nothing: give earliest or offsets")
    if options.ending == EARLIEST:
        raise Mistake("endingOffsets is 'earliest', so that a batch reads nothing: give latest or offsets")


def split(whole: list[OffsetRange], at_least: int | None) -> list[OffsetRange]:
    """Divides ranges, in proportion to their length, into at least so many if there are enough messages."""
    total = sum(part.end - part.start for part in whole)
    if at_least is None or len(whole) >= at_least or not total:
        return whole
    found = []
    for part in whole:
        size = part.end - part.start
        count = min(max(round(size * at_least / total), 1), size)
        cuts = [part.start + size * index // count for index in range(count + 1)]
        found += [OffsetRange(part.key, first, last) for first, last in pairwise(cuts)]
    return found


def limit_offsets(start: OffsetsByStream, end: OffsetsByStream, most: int) -> OffsetsByStream:
    """Limits a batch to `most` messages: one of each stream with new messages, the rest in proportion to their number.

    Streams take turns at the remainder. The sum of all offsets, which grows by `most` with each batch, determines the
    first stream, so every stream gets its turn, also after a restart."""
    new = {key: until - start.get(key, 0) for key, until in end.items() if until > start.get(key, 0)}
    total = sum(new.values())
    if total <= most:
        return end
    shares = dict.fromkeys(new, 0)
    if most >= len(new):
        spare, left = most - len(new), total - len(new)
        shares = {key: 1 + (size - 1) * spare // left for key, size in new.items()}
    odd = most - sum(shares.values())
    for key in [key for key in _round_robin(start, end) if key in new and shares[key] < new[key]][:odd]:
        shares[key] += 1
    return {key: start.get(key, 0) + shares.get(key, 0) for key in end}


def _round_robin(start: OffsetsByStream, end: OffsetsByStream) -> list[StreamKey]:
    keys = sorted(end)
    first = sum(start.get(key, 0) for key in keys) % len(keys)
    return keys[first:] + keys[:first]
