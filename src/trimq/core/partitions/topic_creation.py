"""Staged topics: opens the streams of topics that are about to be created or grown, a few in each loop turn, since
there may be many. The streams are invisible until the topic takes them; the next start removes those that a crash
left."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from trimq.core.partitions.stream import Stream
from trimq.core.partitions.topic import Topic
from trimq.core.partitions.topic_settings import TopicSettings
from trimq.errors import Refusal
from trimq.model import TopicName

log = logging.getLogger(__name__)

STREAMS_PER_TURN = 25
"""Streams opened in one loop turn. Each takes about as long as a small request."""


class StagedTopic:
    """`topic` is invisible to others until it is taken. It has the existing streams and the new ones."""

    def __init__(self, topic: Topic, streams: int, begun_with: int = 0) -> None:
        self.topic = topic
        self.streams = streams
        self.is_ready = False
        self.waiters: list[Callable[[], None]] = []
        self._begun_with = begun_with

    @classmethod
    def for_growth(cls, topic: Topic, streams: int) -> StagedTopic:
        twin = Topic(topic.id, topic.definition(), topic.version)
        twin.streams = list(topic.streams)
        return cls(twin, streams, len(topic.streams))

    @property
    def new_streams(self) -> list[Stream]:
        return self.topic.streams[self._begun_with :]

    @property
    def is_growth(self) -> bool:
        return self._begun_with > 0


class StagedTopicOpener:
    """`open_streams(topic, count)` opens the missing streams of a topic. `discard` is called with a staged topic that
    was not taken."""

    def __init__(
        self,
        open_streams: Callable[[Topic, int], None],
        discard: Callable[[StagedTopic], None],
        call_soon: Callable[[Callable[[], None]], None],
    ) -> None:
        self._open_streams = open_streams
        self._discard = discard
        self._call_soon = call_soon
        self._by_name: dict[TopicName, StagedTopic] = {}

    def blocks_creation(self, name: TopicName, streams: int, settings: TopicSettings) -> bool:
        """Returns whether a topic of this name cannot be created now, because a different one is staged, or an equal
        one is not ready."""
        draft = self._by_name.get(name)
        if draft is None:
            return False
        is_alike = draft.streams == streams and draft.topic.settings == dict(settings)
        return not (draft.is_ready and is_alike and not draft.is_growth)

    def blocks_growth(self, topic: Topic, streams: int) -> bool:
        draft = self._by_name.get(topic.name)
        if draft is None:
            return False
        is_alike = draft.streams == streams and draft.topic.id == topic.id
        return not (draft.is_ready and is_alike and draft.is_growth)

    def wait_until_done(self, names: Iterable[TopicName], callback: Callable[[], None]) -> bool:
        """Calls back when the staged topic of one of these names is taken or dropped. Returns False if none is
        staged."""
        draft = next((self._by_name[name] for name in names if name in self._by_name), None)
        if draft is not None:
            draft.waiters.append(callback)
        return draft is not None

    def take(self, name: TopicName) -> StagedTopic | None:
        """Hands a staged topic with its streams to the caller, which has checked that nothing is blocked."""
        draft = self._by_name.pop(name, None)
        if draft is not None:
            self._notify_waiters(draft)
        return draft

    def _notify_waiters(self, draft: StagedTopic) -> None:
        """Calls the waiters in the next loop turn: the caller of `take` has yet to create the topic."""
        for callback in draft.waiters:
            self._call_soon(callback)

    def open(self, drafts: Sequence[StagedTopic], done: Callable[[], None]) -> None:
        """Calls `done` when all are ready; staged topics that `done` does not take are discarded. Skips a topic if one
        of its name is staged already, or if its streams cannot be opened."""
        begun = [draft for draft in drafts if self._by_name.setdefault(draft.topic.name, draft) is draft]
        self._open_next(deque(begun), begun, done)

    def _open_next(self, left: deque[StagedTopic], drafts: Sequence[StagedTopic], done: Callable[[], None]) -> None:
        room = STREAMS_PER_TURN
        while left and room > 0:
            room -= self._open_some(left, room)
        if left:
            self._call_soon(partial(self._open_next, left, drafts, done))
            return
        try:
            done()
        except Exception:
            log.exception("topic creation: callback failed after the streams were opened")  # drop drafts anyway
        for draft in drafts:
            self._drop(draft)

    def _open_some(self, left: deque[StagedTopic], most: int) -> int:
        """Opens at most `most` streams of the first staged topic. Returns how many were opened."""
        draft = left[0]
        before = len(draft.topic.streams)
        end = min(before + most, draft.streams)
        try:
            self._open_streams(draft.topic, end)
        except Refusal:
            left.popleft()
            self._drop(draft)  # `create` or `grow` raises the refusal to its caller
            return most
        if end == draft.streams:
            draft.is_ready = True
            left.popleft()
        return end - before

    def _drop(self, draft: StagedTopic) -> None:
        if self._by_name.get(draft.topic.name) is draft:
            del self._by_name[draft.topic.name]
            self._discard(draft)
            self._notify_waiters(draft)
