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
_NEVER_SENT = -1


class PartitionKey(NamedTuple):
    """A partition as requests name it: the name is empty or the id is zero, as the version has it."""

    topic: str
    topic_id: bytes
    partition: int


@dataclass(slots=True)
class SessionPartition:
    """One partition that is read, and what the client was told of it last."""

    place: PartitionKey
    asked: FetchPartition
    high_watermark: int = _NEVER_SENT
    log_start_offset: int = _NEVER_SENT

    def has_changed(self, data: PartitionData) -> bool:
        return bool(
            data.records
            or data.error_code
            or data.diverging_epoch is not None
            or data.high_watermark != self.high_watermark
            or data.log_start_offset != self.log_start_offset
        )

    def mark_sent(self, data: PartitionData) -> None:
        # After an error nothing counts as told, so that the client hears when it is over.
        self.high_watermark = _NEVER_SENT if data.error_code else data.high_watermark
        self.log_start_offset = data.log_start_offset


@dataclass(slots=True, eq=False)
class FetchSession:
    id: int
    by_id: bool
    created_ms: int
    used_ms: int
    wanted: dict[PartitionKey, SessionPartition]
    epoch: int = _FIRST_EPOCH


@dataclass(slots=True)
class SessionFetch:
    """One request: what it reads, in this order, and what becomes of its answer."""

    wanted: list[SessionPartition] = field(default_factory=list)
    error: Code = Code.NONE
    session: FetchSession | None = None
    opens_session: bool = False
    by_id: bool = False
    epoch: int = 0

    @property
    def session_id(self) -> int:
        """For an answer that tells nothing of any partition."""
        return _NO_SESSION if self.session is None else self.session.id


class FetchSessions:
    """Those of all connections: any of them may go on with a session. `rng` draws the ids."""

    def __init__(
        self, rng: random.Random, most_sessions: int = MOST_SESSIONS, most_partitions: int = MOST_PARTITIONS
    ) -> None:
        self._rng = rng
        self._most_sessions = most_sessions
        self._most_partitions = most_partitions
        self._sessions: dict[int, FetchSession] = {}  # the one that was not used for longest comes first
        self._partitions = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(self, request: FetchRequest, by_id: bool, now_ms: int) -> SessionFetch:
        """What the request reads. `by_id`: whether its version names topics by their ids."""
        if request.session_epoch in (_OPENS, _WITHOUT):
            self._remove(request.session_id)
            wanted = list(_wanted(request.topics).values())
            return SessionFetch(wanted, opens_session=request.session_epoch == _OPENS, by_id=by_id)
        session = self._sessions.get(request.session_id)
        if session is None:
            return SessionFetch(error=Code.FETCH_SESSION_ID_NOT_FOUND)
        if request.session_epoch != session.epoch:
            return SessionFetch(error=Code.INVALID_FETCH_SESSION_EPOCH)
        if session.by_id != by_id:
            return SessionFetch(error=Code.FETCH_SESSION_TOPIC_ID_ERROR)
        return self._continue_session(session, request, now_ms)

    def finish(self, session_fetch: SessionFetch, response: FetchResponse, now_ms: int) -> None:
        """Make `response`, which tells of everything that the exchange reads, what the client is to get."""
        session = session_fetch.session
        if session is None:
            if session_fetch.opens_session:
                response.session_id = self._open(session_fetch, response, now_ms)
        elif session.epoch != session_fetch.epoch:
            # Somebody went on with the session while this request waited; the client could not tell what is new.
            response.error_code = Code.INVALID_FETCH_SESSION_EPOCH
            response.responses = []
        else:
            response.session_id = session.id
            response.responses = list(_changed_partitions(session, response.responses))

    def _continue_session(self, session: FetchSession, request: FetchRequest, now_ms: int) -> SessionFetch:
        self._partitions -= len(session.wanted)
        _change(session, request)
        session.epoch = _FIRST_EPOCH if session.epoch == _LAST_EPOCH else session.epoch + 1
        self._partitions += len(session.wanted)
        if self._partitions > self._most_partitions:
            self._remove(session.id)
            return SessionFetch(error=Code.FETCH_SESSION_ID_NOT_FOUND)
        if not session.wanted:
            self._remove(session.id)
            return SessionFetch()
        session.used_ms = now_ms
        self._sessions[session.id] = self._sessions.pop(session.id)
        return SessionFetch(list(session.wanted.values()), session=session, epoch=session.epoch)

    def _open(self, session_fetch: SessionFetch, response: FetchResponse, now_ms: int) -> int:
        """Id of a new session; that of none if there is no room, after which the client sends full requests."""
        size = len(session_fetch.wanted)
        if size > self._most_partitions:
            return _NO_SESSION
        while len(self._sessions) >= self._most_sessions or self._partitions + size > self._most_partitions:
            if not self._evict(size, now_ms):
                return _NO_SESSION
        session = FetchSession(
            self._draw_id(), session_fetch.by_id, now_ms, now_ms, {one.place: one for one in session_fetch.wanted}
        )
        for place, data in _sent_partitions(response.responses):
            session.wanted[place].mark_sent(data)
        self._sessions[session.id] = session
        self._partitions += size
        return session.id

    def _draw_id(self) -> int:
        # Not counted from 1: after a restart a client could go on with the session of another.
        while (id := self._rng.randint(1, _LARGEST_ID)) in self._sessions:
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


def _wanted(topics: list[FetchTopic]) -> dict[PartitionKey, SessionPartition]:
    """What is asked for twice is answered once, as it was asked for last."""
    return {
        (place := PartitionKey(topic.topic, topic.topic_id, asked.partition)): SessionPartition(place, asked)
        for topic in topics
        for asked in topic.partitions
    }


def _change(session: FetchSession, request: FetchRequest) -> None:
    for place, wanted in _wanted(request.topics).items():
        known = session.wanted.setdefault(place, wanted)
        known.asked = wanted.asked
    for topic in request.forgotten_topics_data:
        for partition in topic.partitions:
            session.wanted.pop(PartitionKey(topic.topic, topic.topic_id, partition), None)


def _sent_partitions(topics: list[FetchableTopicResponse]) -> Iterator[tuple[PartitionKey, PartitionData]]:
    for topic in topics:
        for data in topic.partitions:
            yield PartitionKey(topic.topic, topic.topic_id, data.partition_index), data


def _changed_partitions(
    session: FetchSession, topics: list[FetchableTopicResponse]
) -> Iterator[FetchableTopicResponse]:
    """Without the partitions of which the client knows everything. Those with records are read last the next time:
    where the answer is full, the others would starve."""
    for topic in topics:
        news = []
        for data in topic.partitions:
            place = PartitionKey(topic.topic, topic.topic_id, data.partition_index)
            wanted = session.wanted[place]
            if wanted.has_changed(data):
                news.append(data)
                wanted.mark_sent(data)
            if data.records:
                session.wanted[place] = session.wanted.pop(place)
        if news:
            yield FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id, partitions=news)
