"""Produce, versions 3 to 13: appends one batch per partition; acks 1 and all (-1) are answered when it is durable.

acks 0 is never answered; an error then closes the connection, so that the client notices it. The core checks records
against the topic's settings and may rewrite a batch. A client over quota gets `throttle_time_ms`, and so does every
client while memory or disk space is short; the broker stops reading from its connection for that long. A transactional
batch needs an open transaction; from version 12 on the batch adds its partition to the transaction. A request that
takes long is handled over several turns of the loop, and its large batches in a thread; later requests of the
connection wait meanwhile. The batches of a request have limits of records and of uncompressed bytes together.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from trimq.core.partitions.batch_validation import LargeBatch, Review
from trimq.core.partitions.stream import Appended, Stream
from trimq.errors import MessageTooLong, MissingKey, ProtocolError, RecordFault, Refusal, UntimelyRecord
from trimq.formats.kafka_batch.compression import Codec
from trimq.formats.kafka_batch.header import (
    HEADER_BYTES,
    LENGTH_ENDS_AT,
    TRANSACTIONAL_BIT,
    BadBatch,
    check_bounds,
    check_sent,
    read_header,
)
from trimq.formats.kafka_batch.records import BatchTooLarge
from trimq.model import Buffer
from trimq.protocols.client_counters import Counts
from trimq.protocols.contract import DeferredReply, Parts, Reply
from trimq.protocols.kafka.handlers.context import Context
from trimq.protocols.kafka.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from trimq.protocols.kafka.names.codes import Code, KafkaRefusal, code_of, code_of_batch
from trimq.protocols.kafka.names.internal_topics import INTERNAL
from trimq.protocols.kafka.wire.connection import Request, encode_response
from trimq.protocols.kafka.wire.fast_produce import FLEXIBLE, write_single_append

log = logging.getLogger(__name__)

# A request that has used so much of a turn of the loop continues in a later one.
_TURN_MS = 8

_ACKS = (-1, 0, 1)
_ZSTD_SINCE = 7
_JOINS_SINCE = 12
_BY_ID = 13

Outcome = tuple[PartitionProduceResponse, Appended | None]


class _NoWrite(KafkaRefusal):
    """The request has nothing to write; not counted as a refused write."""


class TopicOutcome(NamedTuple):
    name: str
    topic_id: bytes
    partitions: list[Outcome]


def handle(context: Context, request: Request) -> Reply | None:
    message = request.decode(ProduceRequest)
    topics = message.topic_data
    if len(topics) == 1 and len(topics[0].partition_data) == 1 and message.acks != 0:
        try:
            return _handle_single_partition(context, request, message, topics[0])
        except LargeBatch as large:
            return _Appends(context, request, message).begin_with(large)
    return _Appends(context, request, message).begin()


class _Appends:
    """Appends the batches of one request in order: in this turn of the loop as far as there is time, the others in
    later turns, between which other connections have theirs. Holds the connection meanwhile, which keeps the order of
    its requests. Outcomes hold names, not the topics of the request: those would keep the receive buffer in use."""

    def __init__(self, context: Context, request: Request, message: ProduceRequest) -> None:
        self._context = context
        self._request = request
        self._message: ProduceRequest | None = message
        self._acks = message.acks
        self._size = _size(message)
        self._outcomes: list[TopicOutcome] = []
        self._batches = self._batches_of(message)
        self._current: tuple[TopicOutcome, TopicProduceData, PartitionProduceData]
        self._records = self._expanded_bytes = 0
        self._reply: DeferredReply | None = None
        self._is_abandoned = False

    def _batches_of(
        self, message: ProduceRequest
    ) -> Iterator[tuple[TopicOutcome, TopicProduceData, PartitionProduceData]]:
        for topic in message.topic_data:
            if topic.partition_data:
                outcome = TopicOutcome(topic.name, topic.topic_id, [])
                self._outcomes.append(outcome)
                for partition in topic.partition_data:
                    yield outcome, topic, partition

    def begin(self) -> Reply | None:
        """Returns the reply; a deferred one if the request takes more than this turn."""
        if not self._append_some():
            return self._reply
        throttle_ms = self._end()
        if self._acks == 0:
            _close_on_error(self._outcomes)
            return None
        return Reply.when_durable(self._number(), lambda: self._answer(throttle_ms))

    def begin_with(self, large: LargeBatch) -> Reply | None:
        """Same as `begin`, after the attempt to append the first batch has raised `large`."""
        self._current = next(self._batches)
        return self._reply if self._review(large) else self.begin()

    # -- turns

    def _append_some(self) -> bool:
        """Appends batches. Returns True if all are done; otherwise it continues in a later turn."""
        timeline = self._context.clock.liveness
        until_ms = timeline.now_ms() + _TURN_MS
        for current in self._batches:
            self._current = current
            try:
                self._append_current()
            except LargeBatch as large:
                if self._review(large):
                    return False
            if timeline.now_ms() >= until_ms:
                self._defer()
                timeline.call_at(until_ms, self._continue)
                return False
        return True

    def _append_current(self, review: Review | None = None) -> None:
        """Raises LargeBatch if the batch must be reviewed first."""
        outcome, topic, sent = self._current
        context, message = self._context, self._message
        assert message is not None
        expanded_before = context.broker.partitions.expanded_bytes
        try:
            if review is None:
                self._count(sent.records)
            result = _append(context, self._request, message, topic, sent.index, sent.records, review)
        except BadBatch as error:
            result = _refuse(context, sent.index, error)
        self._expanded_bytes += context.broker.partitions.expanded_bytes - expanded_before
        outcome.partitions.append(result)

    def _count(self, records: Buffer | None) -> None:
        """Raises BatchTooLarge if the request exceeds a limit with this batch."""
        if records is None or len(records) < HEADER_BYTES:
            return
        header, limits = read_header(records), self._context.broker.settings.limits
        self._records += header.record_count
        if self._records > limits.records_per_request:
            raise BatchTooLarge(f"the batches of this request have more than {limits.records_per_request} records")
        if self._expanded_bytes >= limits.expanded_bytes_per_request and header.codec != Codec.NONE:
            limit = limits.expanded_bytes_per_request
            raise BatchTooLarge(f"the batches of this request expand to more than {limit} bytes")

    def _review(self, large: LargeBatch) -> bool:
        """Lets the current batch be reviewed in a thread. Returns False if it is refused, because too many wait."""
        try:
            self._context.broker.partitions.review(large, lambda: not self._is_abandoned, self._reviewed)
        except Refusal as refusal:
            self._refuse_current(refusal)
            return False
        self._defer()
        return True

    def _refuse_current(self, error: Refusal | BadBatch) -> None:
        outcome, _, sent = self._current
        outcome.partitions.append(_refuse(self._context, sent.index, error))

    def _reviewed(self, review: Review | None, error: BaseException | None) -> None:
        if not self._is_abandoned:
            self._continue(review, error)

    def _continue(self, review: Review | None = None, error: BaseException | None = None) -> None:
        try:
            if self._is_abandoned or not self._settle_current(review, error) or not self._append_some():
                return
            self._finish()
        except Exception as unexpected:
            self._release()
            assert self._reply is not None
            self._reply.fail(unexpected)

    def _settle_current(self, review: Review | None, error: BaseException | None) -> bool:
        """Appends or refuses the batch that was reviewed. Returns False if it must be reviewed once more, because the
        settings of its topic have changed meanwhile."""
        if isinstance(error, Refusal | BadBatch):
            self._refuse_current(error)
        elif error is not None:
            raise error
        elif review is not None:
            try:
                self._append_current(review)
            except LargeBatch as large:
                return not self._review(large)
        return True

    # -- the end

    def _defer(self) -> None:
        if self._reply is None:
            self._reply = DeferredReply(on_abandon=self._abandon, resolves_soon=True)
            self._context.outlet.hold_reading()

    def _finish(self) -> None:
        assert self._reply is not None
        throttle_ms = self._end()
        self._release()
        if self._acks != 0:
            self._reply.resolve_when_durable(self._number(), lambda: self._answer(throttle_ms))
            return
        try:
            _close_on_error(self._outcomes)
        except ProtocolError as failed:
            log.info("connection of %s: closing (%s)", self._context.caller.address, failed)
            self._context.outlet.close()
        self._reply.resolve(())

    def _release(self) -> None:
        self._context.outlet.release_reading()

    def _end(self) -> int:
        """Drops the views of the receive buffer. Returns the throttle time."""
        self._message = None
        del self._batches
        if self._outcomes:
            del self._current
        return self._context.charge_write(self._size)

    def _abandon(self) -> None:
        """The connection is lost, and the client does not know about any of the batches."""
        self._is_abandoned = True
        self._message = None
        self._batches = iter(())

    def _number(self) -> int:
        return max((done.number for topic in self._outcomes for _, done in topic.partitions if done), default=0)

    def _answer(self, throttle_ms: int) -> Parts:
        return _answer(self._context.counts, self._request, self._outcomes, throttle_ms)


def _handle_single_partition(
    context: Context, request: Request, message: ProduceRequest, topic: TopicProduceData
) -> Reply:
    """Fast path of `handle` for one partition, the usual request, if acks is not 0. Falls back to `_answer` on errors
    and before the flexible versions."""
    sent = topic.partition_data[0]
    name, topic_id, index, records = topic.name, topic.topic_id, sent.index, sent.records
    try:
        stream, appended = _try_append(context, request.api_version, message, topic, index, records)
    except (Refusal, BadBatch) as error:
        outcome = _refuse(context, index, error)
        throttle_ms = context.charge_write(len(records or b""))
        refused = [TopicOutcome(name, topic_id, [outcome])]
        return Reply.when_durable(0, lambda: _answer(context.counts, request, refused, throttle_ms))
    start = stream.start
    throttle_ms = context.charge_write(len(records or b""))

    def answer() -> Parts:
        if request.api_version >= FLEXIBLE and appended.refusal is None:
            return [write_single_append(request.correlation_id, request.api_version, name, topic_id, index,
                                       appended.base_offset, appended.append_time_ms, start, throttle_ms)]  # fmt: skip
        outcome = (_appended_response(index, appended, start), appended)
        return _answer(context.counts, request, [TopicOutcome(name, topic_id, [outcome])], throttle_ms)

    return Reply(build=answer, number=appended.number)


def _size(message: ProduceRequest) -> int:
    return sum(len(partition.records or b"") for topic in message.topic_data for partition in topic.partition_data)


def _append(
    context: Context,
    request: Request,
    message: ProduceRequest,
    asked: TopicProduceData,
    index: int,
    records: Buffer | None,
    review: Review | None,
) -> Outcome:
    try:
        stream, appended = _try_append(context, request.api_version, message, asked, index, records, review)
    except (Refusal, BadBatch) as error:
        return _refuse(context, index, error)
    return _appended_response(index, appended, stream.start), appended


def _try_append(
    context: Context,
    version: int,
    message: ProduceRequest,
    asked: TopicProduceData,
    index: int,
    records: Buffer | None,
    review: Review | None = None,
) -> tuple[Stream, Appended]:
    """Appends a batch. Raises Refusal or BadBatch if it is not accepted, and LargeBatch if it must be reviewed
    first."""
    if asked.name in INTERNAL:
        raise KafkaRefusal(Code.INVALID_TOPIC, f"{asked.name} is an internal topic")
    topic = context.topic(asked.name, asked.topic_id if version >= _BY_ID else b"")
    stream = topic.stream(index)
    if message.acks not in _ACKS:
        raise _NoWrite(Code.INVALID_REQUIRED_ACKS, "acks must be -1, 0 or 1")
    if not records:
        raise _NoWrite(Code.INVALID_RECORD, "the request has no batch for this partition")
    if len(records) > stream.message_bytes and (size := check_bounds(records).size) > stream.message_bytes:
        raise MessageTooLong(size, stream.message_bytes)  # before its checksum is computed
    header = check_sent(records)
    if version < _ZSTD_SINCE and header.codec == Codec.ZSTD:
        raise KafkaRefusal(Code.UNSUPPORTED_COMPRESSION_TYPE, f"zstd requires Produce version {_ZSTD_SINCE} or later")
    records = records[: LENGTH_ENDS_AT + header.length]
    if not header.attributes & TRANSACTIONAL_BIT:
        return stream, context.broker.partitions.append(context.caller, topic, stream, records, header, review)
    may_join = version >= _JOINS_SINCE
    joined = context.broker.transactions.check_append(context.caller, _name(message), stream, header, may_join)
    appended = context.broker.partitions.append(context.caller, topic, stream, records, header, review)
    return stream, appended._replace(joined=joined)


def _refuse(context: Context, index: int, error: Refusal | BadBatch) -> Outcome:
    if isinstance(error, BadBatch):
        context.counts.refused_write(type(error).__name__)
        return _failed(index, code_of_batch(error), str(error))
    if not isinstance(error, _NoWrite):
        context.counts.refused_write(error.code.name if isinstance(error, KafkaRefusal) else type(error).__name__)
    faults = error.faults if isinstance(error, MissingKey | UntimelyRecord) else ()
    return _failed(index, code_of(error), str(error), faults)


def _appended_response(index: int, appended: Appended, start: int) -> PartitionProduceResponse:
    return PartitionProduceResponse(
        index=index,
        base_offset=appended.base_offset,
        log_append_time_ms=appended.append_time_ms,
        log_start_offset=start,
    )


def _name(message: ProduceRequest) -> str:
    if message.transactional_id is None:
        raise KafkaRefusal(Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "a transactional batch needs a transactional id")
    return message.transactional_id


def _failed(index: int, code: Code, message: str, faults: Sequence[RecordFault] = ()) -> Outcome:
    response = PartitionProduceResponse(index=index, error_code=code, base_offset=-1, error_message=message)
    response.record_errors = [BatchIndexAndErrorMessage(fault.index, fault.reason) for fault in faults]
    return response, None


def _close_on_error(outcomes: list[TopicOutcome]) -> None:
    for topic in outcomes:
        for response, _ in topic.partitions:
            if response.error_code:
                raise ProtocolError(f"a produce request to {topic.name} with acks=0 failed: {response.error_message}")


def _answer(counts: Counts, request: Request, outcomes: list[TopicOutcome], throttle_ms: int) -> Parts:
    """Encodes the response after the pass, with an error for each batch that could not be written."""
    responses = []
    for topic in outcomes:
        partitions = [_with_write_result(counts, response, appended) for response, appended in topic.partitions]
        responses.append(TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=partitions))
    return encode_response(request, ProduceResponse(responses=responses, throttle_time_ms=throttle_ms))


def _with_write_result(
    counts: Counts, response: PartitionProduceResponse, appended: Appended | None
) -> PartitionProduceResponse:
    refusal = None if appended is None else appended.refusal
    if refusal is None:
        return response
    counts.refused_write(type(refusal).__name__)
    return _failed(response.index, code_of(refusal), str(refusal))[0]


HANDLERS = {"Produce": handle}
