"""ListOffsets, versions 1 to 11: returns the earliest or latest offset, the offset of the latest timestamp, or that of
the first record at or after a timestamp.

A search by timestamp finds the exact record, also inside compressed batches. A large batch is searched in a thread,
while the connection waits.
Not served: tiered storage (answered as a broker without it).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping
from typing import NamedTuple

from trimq.errors import Busy, LargeSearch, Refusal
from trimq.protocols.contract import DeferredReply, Parts, Reply
from trimq.protocols.kafka.handlers.context import Context, ReadableStream
from trimq.protocols.kafka.messages.logs import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from trimq.protocols.kafka.names.codes import Code, KafkaRefusal, code_of
from trimq.protocols.kafka.wire.connection import Request, encode_response

_LATEST, _EARLIEST, _MAX_TIMESTAMP, _EARLIEST_LOCAL, _LATEST_TIERED, _PENDING_UPLOAD = -1, -2, -3, -4, -5, -6
_SINCE_VERSION = {
    _LATEST: 0,
    _EARLIEST: 0,
    _MAX_TIMESTAMP: 7,
    _EARLIEST_LOCAL: 8,
    _LATEST_TIERED: 9,
    _PENDING_UPLOAD: 11,
}
_NEVER = 1 << 15
_READ_COMMITTED = 1
_NOT_CHECKED = -1
_BUSY = Busy("large batches")


class _FoundOffset(NamedTuple):
    offset: int = -1
    timestamp_ms: int = -1
    epoch: int = -1


def handle(context: Context, request: Request) -> Reply:
    message = request.decode(ListOffsetsRequest)
    search = _Search(context, request, message)
    if search.answer_some():
        return Reply.now(search.response())
    return search.reply


class _Search:
    """Answers the partitions of one request in order. A large batch is searched in a thread, while the connection
    waits."""

    def __init__(self, context: Context, request: Request, message: ListOffsetsRequest) -> None:
        self._context = context
        self._request = request
        self._isolation = message.isolation_level
        self._topics: dict[str, dict[int, ListOffsetsPartitionResponse]] = {}
        self._asked = self._partitions_of(message)
        self._current: tuple[str, ListOffsetsPartition, bool] | None = None
        self._outcomes: dict[Hashable, object] = {}
        self._is_waiting = self._is_abandoned = False
        self.reply = DeferredReply(on_abandon=self._abandon, resolves_soon=True)

    def _partitions_of(self, message: ListOffsetsRequest) -> Iterator[tuple[str, ListOffsetsPartition, bool]]:
        """Yields each partition with its topic, and whether it is listed more than once. As in Kafka, a topic that is
        listed twice has one response."""
        asked_of = [(topic.name, asked) for topic in message.topics for asked in topic.partitions]
        counts = Counter((name, asked.partition_index) for name, asked in asked_of)
        for name, asked in asked_of:
            yield name, asked, counts[name, asked.partition_index] > 1

    def answer_some(self) -> bool:
        """Returns True if all partitions are answered. Otherwise it continues, and resolves `reply`."""
        if self._current is None:
            self._current = next(self._asked, None)
        while self._current is not None:
            name, asked, is_repeated = self._current
            index = asked.partition_index
            partitions = self._topics.setdefault(name, {})
            try:
                if is_repeated:
                    raise KafkaRefusal(Code.INVALID_REQUEST, "the partition is listed more than once in the request")
                place = _answer(self._context, self._request, name, asked, self._isolation, self._outcomes)
                partitions[index] = _encode_partition(index, place)
            except LargeSearch as large:
                if self._search(large):
                    return False
                partitions[index] = ListOffsetsPartitionResponse(partition_index=index, error_code=code_of(_BUSY))
            except Refusal as refusal:
                partitions[index] = ListOffsetsPartitionResponse(partition_index=index, error_code=code_of(refusal))
            self._outcomes = {}
            self._current = next(self._asked, None)
        return True

    def response(self) -> Parts:
        topics = [
            ListOffsetsTopicResponse(name=name, partitions=list(found.values())) for name, found in self._topics.items()
        ]
        return encode_response(self._request, ListOffsetsResponse(topics=topics))

    def _search(self, large: LargeSearch) -> bool:
        """Returns False if too many searches wait."""
        try:
            self._context.broker.partitions.search(
                large, lambda: not self._is_abandoned, lambda outcome: self._found(large.key, outcome)
            )
        except Busy:
            return False
        if not self._is_waiting:
            self._is_waiting = True
            self._context.outlet.hold_reading()
        return True

    def _found(self, key: Hashable, outcome: object) -> None:
        if self._is_abandoned:
            return
        self._outcomes[key] = outcome
        try:
            if self.answer_some():
                self._context.outlet.release_reading()
                self.reply.resolve(self.response())
        except Exception as unexpected:
            self._context.outlet.release_reading()
            self.reply.fail(unexpected)

    def _abandon(self) -> None:
        self._is_abandoned = True


def _encode_partition(index: int, place: _FoundOffset) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(
        partition_index=index, offset=place.offset, timestamp=place.timestamp_ms, leader_epoch=place.epoch
    )


def _answer(
    context: Context,
    request: Request,
    name: str,
    asked: ListOffsetsPartition,
    isolation: int,
    outcomes: Mapping[Hashable, object],
) -> _FoundOffset:
    version = request.api_version
    if asked.timestamp < 0 and version < _SINCE_VERSION.get(asked.timestamp, _NEVER):
        raise KafkaRefusal(Code.UNSUPPORTED_VERSION, f"version {version} has no special timestamp {asked.timestamp}")
    stream = context.broker.partitions.describable(
        context.caller, context.readable_topic(name, b""), asked.partition_index
    )
    cluster = context.broker.cluster
    if asked.current_leader_epoch != _NOT_CHECKED:
        cluster.require_epoch(stream.id, asked.current_leader_epoch)
    end = stream.stable_end if isolation == _READ_COMMITTED else stream.readable_end
    current = cluster.leader_epoch(stream.id)
    if asked.timestamp == _LATEST:
        return _FoundOffset(end, epoch=current)
    if asked.timestamp in (_EARLIEST, _EARLIEST_LOCAL):
        return _FoundOffset(stream.start, epoch=_epoch_at(stream, stream.start, current))
    if asked.timestamp in (_LATEST_TIERED, _PENDING_UPLOAD):
        return _FoundOffset()
    limit = context.broker.settings.limits.batch_expansion_bytes
    is_latest = asked.timestamp == _MAX_TIMESTAMP
    if is_latest:
        found = stream.find_latest(limit, outcomes)
        if found is None and stream.readable_end > stream.start:  # no record has a timestamp
            return _FoundOffset(stream.start, epoch=_epoch_at(stream, stream.start, current))
    else:
        found = stream.find_time(asked.timestamp, limit, end, outcomes)
    if found is None:
        return _FoundOffset()
    return _FoundOffset(found.offset, found.timestamp_ms, _epoch_at(stream, found.offset, current))


def _epoch_at(stream: ReadableStream, offset: int, current: int) -> int:
    """Returns the leader epoch of the record at this offset, or of the next append."""
    if offset >= stream.end:
        return current
    found = current
    for epoch, start_offset in stream.log.epochs:
        if start_offset > offset:
            break
        found = epoch
    return found


HANDLERS = {"ListOffsets": handle}
