"""Fetch sessions (KIP-227): what a client reads is remembered, so that it need only send, and be told, what changed.
Decides who may go on with a session and what of an answer is left out; knows no stream, no clock and no connection."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from trimq.protocols.kafka.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from trimq.protocols.kafka.names.codes import Code

MOST_SESSIONS = 1000
# Of all sessions together: their number alone would not bound the memory that clients can claim.
MOST_PARTITIONS = 200_000
# A session is kept for so long at least, and goes when it was not used for so long.
PROTECTED_MS = 120_000

_NO_SESSION = 0
_OPENS = 0
_WITHOUT = -1
_FIRST_EPOCH = 1
_LAST_EPOCH = _LARGEST_ID = 2**31 - 1
_UNTOLD = -1


class Place(NamedTuple):
    """A partition as requests name it: the name is empty or the id is zero, as the version has it."""

    topic: str
    topic_id: bytes
    partition: int


@dataclass(slots=True)
class Wanted:
    """One partition that is read, and what the client was told of it last."""

    place: Place
    asked: FetchPartition
    high_watermark: int = _UNTOLD
    log_start_offset: int = _UNTOLD

    def is_news(self, data: PartitionData) -> bool:
        return bool(
            data.records
            or data.error_code
            or data.diverging_epoch is not None
            or data.high_watermark != self.high_watermark
            or data.log_start_offset != self.log_start_offset
        )

    def told(self, data: PartitionData) -> None:
        # After an error nothing counts as told, so that the client hears when it is over.
        self.high_watermark = _UNTOLD if data.error_code else data.high_watermark
        self.log_start_offset = data.log_start_offset


@dataclass(slots=True, eq=False)
class Session:
    id: int
    by_id: bool
    created_ms: int
    used_ms: int
    wanted: dict[Place, Wanted]
    epoch: int = _FIRST_EPOCH


@dataclass(slots=True)
class Exchange:
    """One request: what it reads, in this order, and what becomes of its answer."""

    wanted: list[Wanted] = field(default_factory=list)
    error: Code = Code.NONE
    session: Session | None = None
    opens: bool = False
    by_id: bool = False
    epoch: int = 0

    @property
    def session_id(self) -> int:
        """For an answer that tells nothing of any partition."""
        return _NO_SESSION if self.session is None else self.session.id


class FetchSessions:
    """Those of all connections: any of them may go on with a session. `chance` draws the ids."""

    def __init__(
        self, chance: random.Random, most_sessions: int = MOST_SESSIONS, most_partitions: int = MOST_PARTITIONS
    ) -> None:
        self._chance = chance
        self._most_sessions = most_sessions
        self._most_partitions = most_partitions
        self._sessions: dict[int, Session] = {}  # the one that was not used for longest comes first
        self._partitions = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(self, request: FetchRequest, by_id: bool, now_ms: int) -> Exchange:
        """What the request reads. `by_id`: whether its version names topics by their ids."""
        if request.session_epoch in (_OPENS, _WITHOUT):
            self._remove(request.session_id)
            wanted = list(_wanted(request.topics).values())
            return Exchange(wanted, opens=request.session_epoch == _OPENS, by_id=by_id)
        session = self._sessions.get(request.session_id)
        if session is None:
            return Exchange(error=Code.FETCH_SESSION_ID_NOT_FOUND)
        if request.session_epoch != session.epoch:
            return Exchange(error=Code.INVALID_FETCH_SESSION_EPOCH)
        if session.by_id != by_id:
            return Exchange(error=Code.FETCH_SESSION_TOPIC_ID_ERROR)
        return self._go_on(session, request, now_ms)

    def finish(self, exchange: Exchange, response: FetchResponse, now_ms: int) -> None:
        """Make `response`, which tells of everything that the exchange reads, what the client is to get."""
        session = exchange.session
        if session is None:
            if exchange.opens:
                response.session_id = self._open(exchange, response, now_ms)
        elif session.epoch != exchange.epoch:
            # Somebody went on with the session while this request waited; the client could not tell what is new.
            response.error_code = Code.INVALID_FETCH_SESSION_EPOCH
            response.responses = []
        else:
            response.session_id = session.id
            response.responses = list(_news(session, response.responses))

    def _go_on(self, session: Session, request: FetchRequest, now_ms: int) -> Exchange:
        self._partitions -= len(session.wanted)
        _change(session, request)
        session.epoch = _FIRST_EPOCH if session.epoch == _LAST_EPOCH else session.epoch + 1
        self._partitions += len(session.wanted)
        if self._partitions > self._most_partitions:
            self._remove(session.id)
            return Exchange(error=Code.FETCH_SESSION_ID_NOT_FOUND)
        if not session.wanted:
            self._remove(session.id)
            return Exchange()
        session.used_ms = now_ms
        self._sessions[session.id] = self._sessions.pop(session.id)
        return Exchange(list(session.wanted.values()), session=session, epoch=session.epoch)

    def _open(self, exchange: Exchange, response: FetchResponse, now_ms: int) -> int:
        """Id of a new session; that of none if there is no room, after which the client sends full requests."""
        size = len(exchange.wanted)
        if size > self._most_partitions:
            return _NO_SESSION
        while len(self._sessions) >= self._most_sessions or self._partitions + size > self._most_partitions:
            if not self._evict(size, now_ms):
                return _NO_SESSION
        session = Session(self._draw_id(), exchange.by_id, now_ms, now_ms, {one.place: one for one in exchange.wanted})
        for place, data in _told(response.responses):
            session.wanted[place].told(data)
        self._sessions[session.id] = session
        self._partitions += size
        return session.id

    def _draw_id(self) -> int:
        # Not counted from 1: after a restart a client could go on with the session of another.
        while (id := self._chance.randint(1, _LARGEST_ID)) in self._sessions:
            pass
        return id

    def _evict(self, size: int, now_ms: int) -> bool:
        """Make room for a session of `size` partitions: one that is not used any more goes, or else a smaller one that
        is not new; it saves less than the larger will."""
        longest_unused = next(iter(self._sessions.values()), None)
        if longest_unused is None:
            return False
        if now_ms - longest_unused.used_ms > PROTECTED_MS:
            self._remove(longest_unused.id)
            return True
        old = (one for one in self._sessions.values() if now_ms - one.created_ms > PROTECTED_MS)
        smallest = min(old, key=lambda one: len(one.wanted), default=None)
        if smallest is None or len(smallest.wanted) >= size:
            return False
        self._remove(smallest.id)
        return True

    def _remove(self, id: int) -> None:
        session = self._sessions.pop(id, None)
        if session is not None:
            self._partitions -= len(session.wanted)


def _wanted(topics: list[FetchTopic]) -> dict[Place, Wanted]:
    """What is asked for twice is answered once, as it was asked for last."""
    return {
        (place := Place(topic.topic, topic.topic_id, asked.partition)): Wanted(place, asked)
        for topic in topics
        for asked in topic.partitions
    }


def _change(session: Session, request: FetchRequest) -> None:
    for place, wanted in _wanted(request.topics).items():
        known = session.wanted.setdefault(place, wanted)
        known.asked = wanted.asked
    for topic in request.forgotten_topics_data:
        for partition in topic.partitions:
            session.wanted.pop(Place(topic.topic, topic.topic_id, partition), None)


def _told(topics: list[FetchableTopicResponse]) -> Iterator[tuple[Place, PartitionData]]:
    for topic in topics:
        for data in topic.partitions:
            yield Place(topic.topic, topic.topic_id, data.partition_index), data


def _news(session: Session, topics: list[FetchableTopicResponse]) -> Iterator[FetchableTopicResponse]:
    """Without the partitions of which the client knows everything. Those with records are read last the next time:
    where the answer is full, the others would starve."""
    for topic in topics:
        news = []
        for data in topic.partitions:
            place = Place(topic.topic, topic.topic_id, data.partition_index)
            wanted = session.wanted[place]
            if wanted.is_news(data):
                news.append(data)
                wanted.told(data)
            if data.records:
                session.wanted[place] = session.wanted.pop(place)
        if news:
            yield FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id, partitions=news)
