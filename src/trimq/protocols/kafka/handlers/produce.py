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
from dataclasses import dataclass
from typing import NamedTuple

from trimq.core.crossing.partitions import BatchedStream, BatchedTopic
from trimq.core.crossing.targets import Placed
from trimq.core.partitions.batch_validation import LargeBatch, Review
from trimq.core.partitions.stream import Appended
from trimq.core.partitions.topics import Topic
from trimq.core.security.resources import Action
from trimq.errors import (
    MessageTooLong,
    MissingKey,
    ProtocolError,
    RecordFault,
    Refusal,
    UntimelyRecord,
)
from trimq.errors.transactions import WrongTransactionState
from trimq.formats.kafka_batch.compression import Codec
from trimq.formats.kafka_batch.header import (
    LENGTH_ENDS_AT,
    TRANSACTIONAL_BIT,
    BadBatch,
    BadFraming,
    BatchHeader,
    UnsupportedMagic,
    check_alone,
    check_base_offset,
    check_bounds,
    check_content,
)
from trimq.formats.kafka_batch.records import BatchTooLarge
from trimq.model import Buffer
from trimq.protocols.client_counters import Counts
from trimq.protocols.contract import DeferredReply, Parts, Reply
from trimq.protocols.kafka.handlers.context import Context, ReadableStream, ReadableTopic
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
from trimq.protocols.kafka.names.internal_topics import INTERNAL, PARTITIONS
from trimq.protocols.kafka.wire.connection import Request, encode_response
from trimq.protocols.kafka.wire.fast_produce import FLEXIBLE, write_single_append

log = logging.getLogger(__name__)

# A request that has used so much of a turn of the loop continues in a later one.
_TURN_MS = 8

_ACKS = (-1, 0, 1)
_ZSTD_SINCE = 7
_JOINS_SINCE = 12
_ABORTS = 11  # clients of this version know TRANSACTION_ABORTABLE
_BY_ID = 13
_NO_START = -1
# Kafka names the first offset of the partition in other refusals.
_WITHOUT_START = (
    Code.INVALID_REQUIRED_ACKS,
    Code.CORRUPT_MESSAGE,
    Code.MESSAGE_TOO_LARGE,
    Code.KAFKA_STORAGE_ERROR,
    Code.NOT_LEADER_OR_FOLLOWER,
    Code.UNKNOWN_TOPIC_OR_PARTITION,
    Code.UNKNOWN_TOPIC_ID,
)
# Kafka looks for transactional batches in the whole request first, which fails if a batch has no framing.
_REFUSES_REQUEST = (BadFraming, UnsupportedMagic)

AnyAppended = Appended | Placed
Outcome = tuple[PartitionProduceResponse, AnyAppended | None]
Topics = dict[tuple[str, bytes], dict[int, Outcome]]
"""Outcome of each partition, by name and id of its topic: a partition that is named twice has one outcome."""
_Place = tuple[str, bytes, int]
# Stands in for the outcome of a partition until it is decided, so that outcomes keep the order of the request.
_UNDECIDED: Outcome = (PartitionProduceResponse(), None)


class _NoWrite(KafkaRefusal):
    """The request has nothing to write; not counted as a refused write."""


class _UnknownCodec(KafkaRefusal):
    """An old client sent a batch with an unknown codec to a partition that exists. Kafka looks for zstd there, and the
    whole request fails."""


@dataclass(eq=False)  # exceptions must stay hashable
class _NotInTransaction(Refusal):
    """The batch is not part of the transaction, which is known before the partition is looked at."""

    reason: Refusal


class _Batch(NamedTuple):
    """Batch that may be appended, as far as its framing and its place tell."""

    topic: ReadableTopic
    stream: ReadableStream
    records: Buffer
    header: BatchHeader


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
    its requests. As in Kafka, a partition that is named twice gets the last of its batches, and its outcome is the
    refusal of the other, if there is one. Outcomes hold names, not the topics of the request: those would keep the
    receive buffer in use."""

    def __init__(self, context: Context, request: Request, message: ProduceRequest) -> None:
        self._context = context
        self._request = request
        self._message: ProduceRequest | None = message
        self._acks = message.acks
        self._size = _size(message)
        self._outcomes: Topics = {}
        self._batches: dict[_Place, _Batch] = {}
        self._refused: dict[_Place, Outcome] = {}
        self._steps = self._prepare(message)
        self._current: tuple[_Place, _Batch] | None = None
        self._large: LargeBatch | None = None
        self._tried: LargeBatch | None = None
        self._records = self._expanded_bytes = 0
        self._last_pass = 0
        """Of all batches, also of those whose outcome is the refusal of another one for the same partition."""
        self._reply: DeferredReply | None = None
        self._is_abandoned = False

    def begin(self) -> Reply | None:
        """Returns the reply; a deferred one if the request takes more than this turn."""
        if not self._append_some():
            return self._reply
        throttle_ms = self._end()
        if self._acks == 0:
            _close_on_error(self._outcomes)
            # Empty, but in order: whoever has the answer to a later request can read these records.
            return Reply.when_durable(self._last_pass, tuple)
        return Reply.when_durable(self._last_pass, lambda: self._answer(throttle_ms))

    def begin_with(self, large: LargeBatch) -> Reply | None:
        """Same as `begin`, after the attempt to append the only batch has raised `large`."""
        self._tried = large
        return self.begin()

    # -- steps

    def _prepare(self, message: ProduceRequest) -> Iterator[None]:
        """Yields after each step: finds the batches, then appends them."""
        sent = [(topic, each) for topic in message.topic_data for each in topic.partition_data]
        for topic, each in sent:
            self._outcomes.setdefault((topic.name, topic.topic_id), {})[each.index] = _UNDECIDED
        try:
            for _, each in sent:
                _check_framing(message, each.records)
        except (Refusal, BadBatch) as error:
            self._refuse_all(sent, error)
            return
        for topic, each in sent:
            place = (topic.name, topic.topic_id, each.index)
            try:
                batch = _find_batch(self._context, self._request.api_version, message, topic, each)
            except _UnknownCodec as error:
                self._refuse_all(sent, error)
                return
            except (Refusal, BadBatch) as error:
                self._refused[place] = _refuse(self._context, each.index, error)
                yield
                continue
            self._batches[place] = batch
            yield
        for current in self._batches.items():
            self._current = current
            self._append_current()
            yield
        for (name, topic_id, index), outcome in self._refused.items():
            self._outcomes[name, topic_id][index] = outcome

    def _refuse_all(self, sent: list[tuple[TopicProduceData, PartitionProduceData]], error: Refusal | BadBatch) -> None:
        for topic, each in sent:
            self._outcomes[topic.name, topic.topic_id][each.index] = _refuse(self._context, each.index, error)

    def _append_current(self, review: Review | None = None) -> None:
        """Appends or refuses the current batch; sets `_large` if it must be reviewed first."""
        message, partitions = self._message, self._context.broker.partitions
        assert self._current is not None
        assert message is not None
        place, batch = self._current
        if self._tried is not None:
            self._large, self._tried = self._tried, None
            return
        expanded_before = partitions.expanded_bytes
        try:
            if self._reply is not None:  # in a later turn the topic may be gone
                topic, stream = _find_stream(self._context, self._request.api_version, *place)
                batch = batch._replace(topic=topic, stream=stream)
            if review is None:
                self._count(batch.header)
            appended = _append(self._context, self._request.api_version, message, batch, review)
        except LargeBatch as large:
            self._large = large
        except (Refusal, BadBatch) as error:
            self._refuse_current(error)
        else:
            self._decide(place, (_appended_response(place[2], appended, batch.stream.start), appended))
        self._expanded_bytes += partitions.expanded_bytes - expanded_before

    def _count(self, header: BatchHeader) -> None:
        """Raises BatchTooLarge if the request exceeds a limit with this batch."""
        limits = self._context.broker.settings.limits
        self._records += header.record_count
        if self._records > limits.records_per_request:
            raise BatchTooLarge(f"the batches of this request have more than {limits.records_per_request} records")
        if self._expanded_bytes >= limits.expanded_bytes_per_request and header.codec != Codec.NONE:
            limit = limits.expanded_bytes_per_request
            raise BatchTooLarge(f"the batches of this request expand to more than {limit} bytes")

    def _refuse_current(self, error: Refusal | BadBatch) -> None:
        assert self._current is not None
        place, batch = self._current
        self._decide(place, _refuse(self._context, place[2], error, batch.stream.start))

    def _decide(self, place: _Place, outcome: Outcome) -> None:
        self._outcomes[place[0], place[1]][place[2]] = outcome
        if outcome[1] is not None:
            self._last_pass = max(self._last_pass, outcome[1].number)

    # -- turns

    def _append_some(self) -> bool:
        """Takes steps. Returns True if all are done; otherwise it continues in a later turn."""
        timeline = self._context.clock.liveness
        until_ms = timeline.now_ms() + _TURN_MS
        for _ in self._steps:
            if self._large is not None and self._review():
                return False
            if timeline.now_ms() >= until_ms:
                self._defer()
                timeline.call_at(until_ms, self._continue)
                return False
        return True

    def _review(self) -> bool:
        """Lets the current batch be reviewed in a thread. Returns False if it is refused, because too many wait."""
        large, self._large = self._large, None
        assert large is not None
        try:
            self._context.broker.partitions.review(large, lambda: not self._is_abandoned, self._reviewed)
        except Refusal as refusal:
            self._refuse_current(refusal)
            return False
        self._defer()
        return True

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
            self._append_current(review)
            return self._large is None or not self._review()
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
            self._reply.resolve_when_durable(self._last_pass, lambda: self._answer(throttle_ms))
            return
        try:
            _close_on_error(self._outcomes)
        except ProtocolError as failed:
            log.info("connection of %s: closing (%s)", self._context.caller.address, failed)
            self._context.outlet.close()
        self._reply.resolve_when_durable(self._last_pass, tuple)

    def _release(self) -> None:
        self._context.outlet.release_reading()

    def _end(self) -> int:
        """Drops the views of the receive buffer. Returns the throttle time."""
        self._forget()
        return self._context.charge_write(self._size)

    def _abandon(self) -> None:
        """The connection is lost, and the client does not know about any of the batches."""
        self._is_abandoned = True
        self._forget()

    def _forget(self) -> None:
        self._message = None
        self._steps = iter(())
        self._batches = {}
        self._current = None

    def _answer(self, throttle_ms: int) -> Parts:
        return _answer(self._context.counts, self._request, self._outcomes, throttle_ms)


def _reply(counts: Counts, request: Request, outcomes: Topics, throttle_ms: int) -> Reply:
    return Reply.when_durable(0, lambda: _answer(counts, request, outcomes, throttle_ms))


def _handle_single_partition(
    context: Context, request: Request, message: ProduceRequest, topic: TopicProduceData
) -> Reply:
    """Fast path of `handle` for one partition, the usual request, if acks is not 0. Falls back to `_answer` on errors
    and before the flexible versions."""
    sent = topic.partition_data[0]
    name, topic_id, index, size = topic.name, topic.topic_id, sent.index, len(sent.records or b"")
    start = _NO_START
    try:
        batch = _find_batch(context, request.api_version, message, topic, sent)
        start = batch.stream.start
        appended = _append(context, request.api_version, message, batch)
    except (Refusal, BadBatch) as error:
        refused = {(name, topic_id): {index: _refuse(context, index, error, start)}}
        return _reply(context.counts, request, refused, context.charge_write(size))
    start = batch.stream.start
    throttle_ms = context.charge_write(size)

    def answer() -> Parts:
        if request.api_version >= FLEXIBLE and appended.refusal is None:
            return [write_single_append(request.correlation_id, request.api_version, name, topic_id, index,
                                       appended.base_offset, appended.append_time_ms, start, throttle_ms)]  # fmt: skip
        outcomes: Topics = {(name, topic_id): {index: (_appended_response(index, appended, start), appended)}}
        return _answer(context.counts, request, outcomes, throttle_ms)

    return Reply(build=answer, number=appended.number)


def _size(message: ProduceRequest) -> int:
    return sum(len(partition.records or b"") for topic in message.topic_data for partition in topic.partition_data)


def _check_framing(message: ProduceRequest, records: Buffer | None) -> None:
    """Raises if the whole request is refused because of this batch."""
    if not records:
        return
    try:
        header = check_bounds(records)
    except BadBatch as error:
        if type(error) in _REFUSES_REQUEST:
            raise
        return
    if header.attributes & TRANSACTIONAL_BIT:
        _name(message)


def _find_batch(
    context: Context, version: int, message: ProduceRequest, topic: TopicProduceData, sent: PartitionProduceData
) -> _Batch:
    """Returns the batch and its place. Raises Refusal or BadBatch if it must not even be tried."""
    records = sent.records
    fault: BadBatch | None = None
    if records:
        try:
            header = check_alone(records)
            if header.attributes & TRANSACTIONAL_BIT:
                _name(message)
        except BadBatch as error:
            if type(error) in _REFUSES_REQUEST:
                raise
            fault = error
    if topic.name in INTERNAL and fault is None and records and message.acks not in _ACKS:
        raise _NoWrite(Code.INVALID_REQUIRED_ACKS, "acks must be -1, 0 or 1")
    has_unknown_codec = bool(records) and fault is None and version < _ZSTD_SINCE and header.codec > Codec.ZSTD
    if has_unknown_codec and topic.name in INTERNAL and 0 <= sent.index < PARTITIONS:
        raise _UnknownCodec(Code.UNSUPPORTED_COMPRESSION_TYPE, f"unknown codec {header.codec}")
    found, stream = _find_stream(context, version, topic.name, topic.topic_id, sent.index)
    if fault is not None:
        raise fault
    if not records:
        raise _NoWrite(Code.INVALID_RECORD, "the request has no batch for this partition")
    if has_unknown_codec:
        raise _UnknownCodec(Code.UNSUPPORTED_COMPRESSION_TYPE, f"unknown codec {header.codec}")
    if version < _ZSTD_SINCE and header.codec == Codec.ZSTD:
        raise KafkaRefusal(Code.UNSUPPORTED_COMPRESSION_TYPE, f"zstd requires Produce version {_ZSTD_SINCE} or later")
    return _Batch(found, stream, records[: LENGTH_ENDS_AT + header.length], header)


def _find_stream(
    context: Context, version: int, name: str, topic_id: bytes, index: int
) -> tuple[ReadableTopic, ReadableStream]:
    if name in INTERNAL:
        if not 0 <= index < PARTITIONS:
            raise KafkaRefusal(Code.UNKNOWN_TOPIC_OR_PARTITION, f"{name} has no partition {index}")
        raise KafkaRefusal(Code.INVALID_TOPIC, f"{name} is an internal topic")
    id = topic_id if version >= _BY_ID else b""
    try:
        topic: ReadableTopic = context.topic(name, id, Action.WRITE)
    except Refusal as refusal:
        topic = context.foreign_topic(name, id, Action.WRITE, refusal)
    return topic, topic.stream(index)


def _append(
    context: Context, version: int, message: ProduceRequest, batch: _Batch, review: Review | None = None
) -> AnyAppended:
    """Appends a batch. Raises Refusal or BadBatch if it is not accepted, and LargeBatch if it must be reviewed
    first."""
    topic, stream, records, header = batch
    if isinstance(stream, BatchedStream):
        return _append_foreign(context, message, batch)
    assert isinstance(topic, Topic)
    joined = None
    is_in_transaction = header.attributes & TRANSACTIONAL_BIT and header.producer_id >= 0
    if is_in_transaction:
        may_join = version >= _JOINS_SINCE
        try:
            joined = context.broker.transactions.check_append(context.caller, _name(message), stream, header, may_join)
        except WrongTransactionState as refusal:
            fits = KafkaRefusal(Code.TRANSACTION_ABORTABLE, str(refusal)) if version == _ABORTS else refusal
            raise _NotInTransaction(fits) from None
        except Refusal as refusal:
            raise _NotInTransaction(refusal) from None
    if message.acks not in _ACKS:
        raise _NoWrite(Code.INVALID_REQUIRED_ACKS, "acks must be -1, 0 or 1")
    if header.base_offset:
        check_base_offset(header)
    if len(records) > stream.message_bytes:
        raise MessageTooLong(len(records), stream.message_bytes)
    check_content(records, header)
    transactions = context.broker.transactions
    if not is_in_transaction:
        highest = None
        if header.producer_id >= 0 and transactions.has_refused_batches:
            highest = transactions.highest_sequence(stream, header)
        return context.broker.partitions.append(context.caller, topic, stream, records, header, review, highest)
    highest = transactions.highest_sequence(stream, header)
    appended = context.broker.partitions.append(context.caller, topic, stream, records, header, review, highest)
    transactions.accepted(stream, header)
    return appended if joined is None else appended._replace(joined=joined)


def _append_foreign(context: Context, message: ProduceRequest, batch: _Batch) -> Placed:
    """Appends the records of a batch to a topic of another layout."""
    topic, stream, records, header = batch
    assert isinstance(topic, BatchedTopic)
    if message.acks not in _ACKS:
        raise _NoWrite(Code.INVALID_REQUIRED_ACKS, "acks must be -1, 0 or 1")
    if header.attributes & TRANSACTIONAL_BIT:
        reason = f"{topic.name} is a topic of another protocol, which cannot be part of a transaction"
        raise KafkaRefusal(Code.INVALID_TOPIC, reason)
    if header.base_offset:
        check_base_offset(header)
    limit = context.broker.settings.storage.message_bytes
    if len(records) > limit:
        raise MessageTooLong(len(records), limit)
    check_content(records, header)
    return context.broker.foreign_topics.append_batch(context.caller, topic, stream.id.number, records, header)


def _refuse(context: Context, index: int, error: Refusal | BadBatch, start: int = _NO_START) -> Outcome:
    """`start`: first offset of the partition, if it was found."""
    if isinstance(error, _NotInTransaction):
        error, start = error.reason, _NO_START
    if isinstance(error, BadBatch):
        context.counts.refused_write(type(error).__name__)
        return _failed(index, code_of_batch(error), str(error), start)
    if not isinstance(error, _NoWrite):
        context.counts.refused_write(error.code.name if isinstance(error, KafkaRefusal) else type(error).__name__)
    faults = error.faults if isinstance(error, MissingKey | UntimelyRecord) else ()
    return _failed(index, code_of(error), str(error), start, faults)


def _appended_response(index: int, appended: AnyAppended, start: int) -> PartitionProduceResponse:
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


def _failed(
    index: int, code: Code, message: str, start: int = _NO_START, faults: Sequence[RecordFault] = ()
) -> Outcome:
    response = PartitionProduceResponse(index=index, error_code=code, base_offset=-1, error_message=message)
    response.log_start_offset = _NO_START if code in _WITHOUT_START else start
    response.record_errors = [BatchIndexAndErrorMessage(fault.index, fault.reason) for fault in faults]
    return response, None


def _close_on_error(outcomes: Topics) -> None:
    for (name, _), partitions in outcomes.items():
        for response, _ in partitions.values():
            if response.error_code:
                raise ProtocolError(f"a produce request to {name} with acks=0 failed: {response.error_message}")


def _answer(counts: Counts, request: Request, outcomes: Topics, throttle_ms: int) -> Parts:
    """Encodes the response after the pass, with an error for each batch that could not be written."""
    responses = []
    for (name, topic_id), outcome in outcomes.items():
        partitions = [_with_write_result(counts, response, appended) for response, appended in outcome.values()]
        responses.append(TopicProduceResponse(name=name, topic_id=topic_id, partition_responses=partitions))
    return encode_response(request, ProduceResponse(responses=responses, throttle_time_ms=throttle_ms))


def _with_write_result(
    counts: Counts, response: PartitionProduceResponse, appended: AnyAppended | None
) -> PartitionProduceResponse:
    refusal = None if appended is None else appended.refusal
    if refusal is None:
        return response
    counts.refused_write(type(refusal).__name__)
    return _failed(response.index, code_of(refusal), str(refusal))[0]


HANDLERS = {"Produce": handle}
