"""Fetch sessions (KIP-227): remember the partitions that a client reads, so that requests and responses contain only
changes. Decides whether a request may continue a session, and which partitions a response leaves out. Knows no stream,
no clock and no connection."""

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

MAX_SESSIONS = 1000
# In all sessions together: the number of sessions alone does not bound the memory.
MAX_PARTITIONS = 200_000
# A session is kept at least this long, and may be evicted after being unused for this long.
PROTECTED_MS = 120_000

_NO_SESSION = 0
_OPENS = 0
_WITHOUT = -1
_FIRST_EPOCH = 1
_LAST_EPOCH = _LARGEST_ID = 2**31 - 1
_NEVER_SENT = -1


class PartitionKey(NamedTuple):
    """A partition as a request names it: depending on the version, the topic name is empty or the topic id is zero."""

    topic: str
    topic_id: bytes
    partition: int


@dataclass(slots=True)
class SessionPartition:
    """One partition of a session, and the offsets last sent to the client."""

    place: PartitionKey
    asked: FetchPartition
    high_watermark: int = _NEVER_SENT
    log_start_offset: int = _NEVER_SENT
    is_known: bool = False
    """The topic was found before: when it is deleted, Kafka no longer says that its id is unknown."""

    def has_changed(self, data: PartitionData) -> bool:
        return bool(
            data.records
            or data.error_code
            or data.diverging_epoch is not None
            or data.high_watermark != self.high_watermark
            or data.log_start_offset != self.log_start_offset
        )

    def mark_sent(self, data: PartitionData) -> None:
        # After an error the next response includes the partition, so that the client sees the recovery.
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
    """One request: the partitions that it reads, in order, and its relation to a session."""

    wanted: list[SessionPartition] = field(default_factory=list)
    error: Code = Code.NONE
    session: FetchSession | None = None
    opens_session: bool = False
    by_id: bool = False
    epoch: int = 0

    @property
    def session_id(self) -> int:
        """Session id of a response without partitions."""
        return _NO_SESSION if self.session is None else self.session.id


class FetchSessions:
    """Fetch sessions of all connections; any connection may continue any session. `rng` generates the ids."""

    def __init__(
        self, rng: random.Random, max_sessions: int = MAX_SESSIONS, max_partitions: int = MAX_PARTITIONS
    ) -> None:
        self._rng = rng
        self._max_sessions = max_sessions
        self._max_partitions = max_partitions
        self._sessions: dict[int, FetchSession] = {}  # least recently used first
        self._partitions = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(self, request: FetchRequest, by_id: bool, now_ms: int) -> SessionFetch:
        """Starts a request. `by_id`: the version of the request names topics by their ids."""
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
        """Sets the session id of `response`, which has all partitions, and removes those without changes."""
        session = session_fetch.session
        if session is None:
            if session_fetch.opens_session:
                response.session_id = self._open(session_fetch, response, now_ms)
        elif session.epoch != session_fetch.epoch:
            # Another request continued the session while this one waited: the changes are relative to a newer state.
            response.error_code = Code.INVALID_FETCH_SESSION_EPOCH
            response.responses = []
        else:
            response.session_id = session.id
            response.responses = _changed_partitions(session, response.responses)

    def _continue_session(self, session: FetchSession, request: FetchRequest, now_ms: int) -> SessionFetch:
        self._partitions -= len(session.wanted)
        _change(session, request)
        session.epoch = _FIRST_EPOCH if session.epoch == _LAST_EPOCH else session.epoch + 1
        self._partitions += len(session.wanted)
        if self._partitions > self._max_partitions:
            self._remove(session.id)
            return SessionFetch(error=Code.FETCH_SESSION_ID_NOT_FOUND)
        if not session.wanted:  # as in Kafka, then a request without a session
            self._remove(session.id)
            return SessionFetch(list(_wanted(request.topics).values()))
        session.used_ms = now_ms
        self._sessions[session.id] = self._sessions.pop(session.id)
        return SessionFetch(list(session.wanted.values()), session=session, epoch=session.epoch)

    def _open(self, session_fetch: SessionFetch, response: FetchResponse, now_ms: int) -> int:
        """Opens a session and returns its id, or 0 if there is no room: the client then sends full requests."""
        size = len(session_fetch.wanted)
        if size > self._max_partitions:
            return _NO_SESSION
        while len(self._sessions) >= self._max_sessions or self._partitions + size > self._max_partitions:
            if not self._evict(size, now_ms):
                return _NO_SESSION
        asked = {one.place: one for one in session_fetch.wanted}
        session = FetchSession(self._draw_id(), session_fetch.by_id, now_ms, now_ms, {})
        for place, data in _sent_partitions(response.responses):  # the session has the order of the response
            session.wanted[place] = asked[place]
            asked[place].mark_sent(data)
        self._sessions[session.id] = session
        self._partitions += size
        return session.id

    def _draw_id(self) -> int:
        # Random, not counted: after a restart a client could otherwise continue the session of another client.
        while (id := self._rng.randint(1, _LARGEST_ID)) in self._sessions:
            pass
        return id

    def _evict(self, size: int, now_ms: int) -> bool:
        """Evicts one session for a new one of `size` partitions: an unused one, or else a smaller one that is not new,
        as the larger session saves more. Returns False if there is none."""
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
    """Returns the requested partitions. If one is listed twice, the last entry counts."""
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


def _changed_partitions(session: FetchSession, topics: list[FetchableTopicResponse]) -> list[FetchableTopicResponse]:
    """Returns topics without unchanged partitions; those of one topic that follow each other then are in one entry.
    Moves partitions with records to the end of the session: otherwise the others would starve when responses are
    full."""
    changed: list[FetchableTopicResponse] = []
    for topic in topics:
        for data in topic.partitions:
            place = PartitionKey(topic.topic, topic.topic_id, data.partition_index)
            wanted = session.wanted[place]
            if wanted.has_changed(data):
                add_partition(changed, place, data)
                wanted.mark_sent(data)
            if data.records:
                session.wanted[place] = session.wanted.pop(place)
    return changed


def add_partition(topics: list[FetchableTopicResponse], place: PartitionKey, data: PartitionData) -> None:
    """Adds a partition to the topic before it, or to a new entry: as in Kafka, an entry has only partitions that follow
    each other."""
    if not topics or (topics[-1].topic, topics[-1].topic_id) != place[:2]:
        topics.append(FetchableTopicResponse(topic=place.topic, topic_id=place.topic_id, partitions=[]))
    topics[-1].partitions.append(data)
