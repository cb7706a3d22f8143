"""Fetch, versions 4 to 18: returns whole stored batches; a long poll waits for `min_bytes` or `max_wait_ms`.

A long poll is woken by the requested partitions or by one timer. Cold data is loaded off the event loop first. A client
over quota gets `throttle_time_ms` and no records, and the broker stops reading from its connection for that long. A
request within a fetch session names only the changed partitions.

Not served: fetching from followers."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial

from trimq.core.cold_reads import ColdReadRetry
from trimq.core.crossing.partitions import BatchedStream
from trimq.core.scheduling.waiters import AnyWatch
from trimq.core.security.quotas import Metered
from trimq.core.security.resources import Action
from trimq.errors import ColdRead, DamagedSegment, OffsetOutOfRange, Refusal, StaleEpoch, UnknownTopic
from trimq.protocols.contract import Parts, Reply
from trimq.protocols.kafka.handlers.context import Context, ReadableStream, ReadableTopic
from trimq.protocols.kafka.handlers.fetch_sessions import (
    PartitionKey,
    SessionFetch,
    SessionPartition,
    add_partition,
)
from trimq.protocols.kafka.handlers.offset_for_leader_epoch import find_end
from trimq.protocols.kafka.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from trimq.protocols.kafka.names.codes import Code, KafkaRefusal, code_of
from trimq.protocols.kafka.wire.connection import Request, encode_response
from trimq.protocols.long_poll import LongPoll, WaitingRequest, Watch

_READ_UNCOMMITTED, _READ_COMMITTED = 0, 1
_BY_ID = 13
_MAX_BYTES = 55 * 1024 * 1024


def handle(context: Context, request: Request) -> Reply:
    message = request.decode(FetchRequest)
    now_ms = context.clock.liveness.now_ms()
    session_fetch = context.fetch_sessions.begin(message, request.api_version >= _BY_ID, now_ms)
    if message.isolation_level not in (_READ_UNCOMMITTED, _READ_COMMITTED) and _names_a_partition(
        context, request, session_fetch
    ):
        return Reply.now(encode_response(request, FetchResponse(error_code=Code.INVALID_REQUEST, responses=[])))
    throttle_ms = context.charge(Metered.OUT, 0)
    if throttle_ms or session_fetch.error:
        told = FetchResponse(
            throttle_time_ms=throttle_ms,
            error_code=session_fetch.error,
            session_id=session_fetch.session_id,
            responses=[],
        )
        return Reply.now(encode_response(request, told))
    fetch = _Fetch(context, request, message, session_fetch)
    response = fetch.read()
    if not fetch.cold and (fetch.is_enough() or message.max_wait_ms <= 0):
        return Reply.now(fetch.encode(response))
    return LongPoll(fetch, context.clock.liveness, context.counts, message.max_wait_ms).reply


class _Fetch(WaitingRequest):
    """One fetch request. Reads all requested partitions, again when data arrives or when cold data was loaded."""

    def __init__(self, context: Context, request: Request, message: FetchRequest, session_fetch: SessionFetch) -> None:
        self._context = context
        self._request = request
        self._message = message
        self._session_fetch = session_fetch
        self._found_bytes = self._cold_bytes = 0
        self._found_error = False
        self._found_stale = False
        self._seen: set[PartitionKey] = set()
        """Partitions that this request has read before."""
        self.streams: list[ReadableStream] = []
        self.cold: list[ColdRead] = []
        """Cold data that the last read skipped."""
        self._retry: ColdReadRetry | None = None
        self._may_wait = False
        self._is_unreadable = False
        self._is_expired = False
        self._has_ended = False

    def is_enough(self) -> bool:
        asked = self._message
        return self._found_error or self._found_bytes >= min(asked.min_bytes, asked.max_bytes) or not self.streams

    def encode(self, response: FetchResponse) -> Parts:
        # A client over quota is throttled at its next request, not at this one.
        self._context.broker.quotas.charge(self._context.caller, Metered.OUT, self._found_bytes)
        if self._session_fetch.opens_session or self._session_fetch.session is not None:
            self._context.fetch_sessions.finish(self._session_fetch, response, self._context.clock.liveness.now_ms())
        return encode_response(self._request, response)

    def read(self) -> FetchResponse:
        self._found_bytes = self._cold_bytes = 0
        self.streams = []
        self.cold = []
        self._may_wait = self._retry is not None and self._retry.may_wait and not self._is_unreadable
        left = min(self._message.max_bytes, _MAX_BYTES)
        topics: list[FetchableTopicResponse] = []
        refused: list[tuple[PartitionKey, Refusal]] = []
        for wanted in self._session_fetch.wanted:
            try:
                stream = self._find_stream(wanted)
                self._seen.add(wanted.place)
            except Refusal as refusal:
                is_deleted = wanted.is_known and code_of(refusal) == Code.UNKNOWN_TOPIC_ID
                refused.append((wanted.place, UnknownTopic(wanted.place.topic) if is_deleted else refusal))
                continue
            used = self._found_bytes + self._cold_bytes
            data = self._read_partition(stream, wanted.asked, left)
            add_partition(topics, wanted.place, data)
            if data.records:
                self._found_bytes += len(data.records)
            left = max(left - (self._found_bytes + self._cold_bytes - used), 0)
        # What cannot be read is last; for consumers, topics whose id is unknown come first of it.
        if refused and not self._is_replica:
            refused.sort(key=lambda each: code_of(each[1]) != Code.UNKNOWN_TOPIC_ID)
        for place, why in refused:
            add_partition(
                topics, place, _failed(place.partition, code_of(why), aborted=None if place in self._seen else [])
            )
        return FetchResponse(responses=topics, node_endpoints=self._endpoints() if self._found_stale else [])

    def _find_stream(self, wanted: SessionPartition) -> ReadableStream:
        place = wanted.place
        id = place.topic_id if self._request.api_version >= _BY_ID else b""
        try:
            found: ReadableTopic = self._context.topic(place.topic, id, Action.READ)
        except Refusal as refusal:
            found = self._context.foreign_topic(place.topic, id, Action.READ, refusal)
        wanted.is_known = True
        return self._context.broker.partitions.readable(self._context.caller, found, place.partition)

    def _read_partition(self, stream: ReadableStream, asked: FetchPartition, left: int) -> PartitionData:
        self.streams.append(stream)
        try:
            self._check(stream, asked)
            diverging = self._find_divergence(stream, asked)
            if diverging is not None:
                self._found_error = True
                data = self._describe(stream, asked.partition)
                data.aborted_transactions = None
                data.diverging_epoch = diverging
                return data
            return self._read_stream(stream, asked, left)
        except StaleEpoch as refusal:
            self._found_error = self._found_stale = True
            leader = LeaderIdAndEpoch(self._context.broker.cluster.owner(stream.id).id, refusal.current)
            data = _failed(asked.partition, code_of(refusal))
            data.current_leader = leader
            return data
        except Refusal as refusal:
            self._found_error = True
            return _failed(asked.partition, code_of(refusal))

    def _endpoints(self) -> list[NodeEndpoint]:
        return [
            NodeEndpoint(node_id=node.id, host=address.host, port=address.port, rack=node.rack)
            for node in self._context.broker.cluster.nodes()
            if (address := node.addresses.get("kafka")) is not None
        ]

    def _check(self, stream: ReadableStream, asked: FetchPartition) -> None:
        if asked.current_leader_epoch >= 0:
            self._context.broker.cluster.require_epoch(stream.id, asked.current_leader_epoch)
        if self._is_replica:
            knows_epoch = asked.current_leader_epoch >= 0
            code = Code.UNKNOWN_LEADER_EPOCH if knows_epoch else Code.NOT_LEADER_OR_FOLLOWER
            raise KafkaRefusal(code, "fetch by a replica refused: this broker has no followers")

    @property
    def _is_replica(self) -> bool:
        state = self._message.replica_state
        return (self._message.replica_id if state is None else state.replica_id) >= 0

    def _find_divergence(self, stream: ReadableStream, asked: FetchPartition) -> EpochEndOffset | None:
        """Returns the end of the last common epoch if the log diverged from the data that the client fetched before;
        otherwise None."""
        if asked.last_fetched_epoch >= 0:
            current = self._context.broker.cluster.leader_epoch(stream.id)
            epoch, end = find_end(stream, asked.last_fetched_epoch, current)
            if epoch < 0:
                raise OffsetOutOfRange(asked.fetch_offset, stream.start, stream.readable_end)
            if epoch < asked.last_fetched_epoch or end < asked.fetch_offset:
                return EpochEndOffset(epoch=epoch, end_offset=end)
        return None

    def _describe(self, stream: ReadableStream, index: int) -> PartitionData:
        return PartitionData(
            partition_index=index,
            high_watermark=stream.readable_end,
            last_stable_offset=stream.stable_end,
            log_start_offset=stream.start,
            aborted_transactions=[] if self._message.isolation_level == _READ_COMMITTED else None,
            records=b"",
        )

    def _read_stream(self, stream: ReadableStream, asked: FetchPartition, left: int) -> PartitionData:
        data = self._describe(stream, asked.partition)
        # Checked even if this response has no room for records of the partition.
        if not data.log_start_offset <= asked.fetch_offset <= data.high_watermark and not (
            isinstance(stream, BatchedStream) and stream.gives_away and 0 <= asked.fetch_offset <= data.high_watermark
        ):
            raise OffsetOutOfRange(asked.fetch_offset, data.log_start_offset, data.high_watermark)
        limit = data.last_stable_offset if self._message.isolation_level == _READ_COMMITTED else None
        # The first batch is returned even if it exceeds the limits; otherwise a client could never read past it.
        most = min(asked.partition_max_bytes, left) if left > 0 else 0
        is_first = self._found_bytes == 0 and not self.cold
        is_first = is_first and min(asked.partition_max_bytes, left) >= 0
        if most > 0 or is_first:
            try:
                found = stream.read(asked.fetch_offset, max(most, 0), limit, self._may_wait)
            except ColdRead as cold:
                self._leave_out(cold, max(most, 0))
                return data
            if found.size <= most or is_first:
                data.records = found.parts[0] if found.parts else b""
                if data.records and data.aborted_transactions is not None:
                    data.aborted_transactions = _aborted(stream, asked.fetch_offset, found.next_offset)
            else:  # not even the first batch fits
                data.aborted_transactions = None
        return data

    def _leave_out(self, cold: ColdRead, size: int) -> None:
        self.cold.append(cold)
        self._cold_bytes += size
        if self._is_unreadable:
            raise DamagedSegment(cold.file, cold.position)

    # -- long poll

    def watch(self, wake: Callable[[], None]) -> Watch | None:
        if not self.cold:
            streams = self.streams
            return streams[0].watch(wake) if len(streams) == 1 else AnyWatch([each.watch for each in streams], wake)
        if self._retry is None:
            self._retry = ColdReadRetry(self._context.broker.partitions.warm)
        self._retry.load(ColdRead.joined(self.cold), partial(self._loaded, wake))
        return None

    def _loaded(self, wake: Callable[[], None], damage: DamagedSegment | None) -> None:
        if not self._has_ended:
            self._is_unreadable = damage is not None
            wake()

    def attempt(self) -> Reply | None:
        response = self.read()
        is_enough = self._is_expired or self.is_enough()
        if self._is_unreadable or (is_enough and not self.cold):
            return Reply.when_durable(0, partial(self._encode_waited, response))
        return None

    def expire(self) -> Reply | None:
        self._is_expired = True
        is_loading = self._retry is not None and self._retry.is_loading
        return None if is_loading else self.answer_now()

    def answer_now(self) -> Reply:
        return Reply.when_durable(0, lambda: self._encode_waited(self.read()))

    def ended(self) -> None:
        self._has_ended = True

    def _encode_waited(self, response: FetchResponse) -> Parts:
        if self.cold:
            self._context.broker.partitions.warm(ColdRead.joined(self.cold), lambda error: None)  # for the next request
        return self.encode(response)


def _aborted(stream: ReadableStream, from_offset: int, to_offset: int) -> list[AbortedTransaction]:
    """Returns the aborted transactions whose records the client must skip."""
    return [
        AbortedTransaction(producer_id=aborted.producer_id, first_offset=aborted.first_offset)
        for aborted in stream.aborted(from_offset, to_offset)
    ]


def _names_a_partition(context: Context, request: Request, session_fetch: SessionFetch) -> bool:
    """Returns whether the request or its session names a partition that exists: without one, Kafka does not look at
    other fields."""
    by_id = request.api_version >= _BY_ID
    for wanted in session_fetch.wanted:
        with suppress(Refusal):
            place = wanted.place
            context.readable_topic(place.topic, place.topic_id if by_id else b"").stream(place.partition)
            return True
    return False


def _failed(index: int, code: Code, aborted: list[AbortedTransaction] | None = None) -> PartitionData:
    """Builds an error entry, with the offsets unset (-1)."""
    return PartitionData(
        partition_index=index,
        error_code=code,
        high_watermark=-1,
        last_stable_offset=-1,
        log_start_offset=-1,
        aborted_transactions=aborted,
        records=b"",
    )


HANDLERS = {"Fetch": handle}
