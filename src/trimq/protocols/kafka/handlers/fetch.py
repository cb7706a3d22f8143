"""Fetch, versions 4 to 18: whole batches as they are stored; held until enough bytes are there or the wait is over.

An idle consumer costs nothing: it is woken by the streams it asked for, or by one timer.
Not served: sessions (answered with session id 0, which sends clients back to full requests), reading from followers.
"""

from __future__ import annotations

from trimq.core.streams import Stream
from trimq.core.waiters import Watch
from trimq.errors import OffsetOutOfRange, Refusal
from trimq.protocols.contract import Reply
from trimq.protocols.kafka.codes import Code, code_of
from trimq.protocols.kafka.connection import Request, encode_response
from trimq.protocols.kafka.handlers.context import Context
from trimq.protocols.kafka.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)

_READ_COMMITTED = 1
_MOST_BYTES = 55 * 1024 * 1024


def handle(context: Context, request: Request) -> Reply:
    message = request.decode(FetchRequest)
    attempt = _Attempt(context, request, message)
    response = attempt.read()
    if attempt.is_enough(message) or message.max_wait_ms <= 0:
        return Reply.now(encode_response(request, response))
    return _Held(context, attempt, message).reply


class _Attempt:
    """One look at everything that a request asks for."""

    def __init__(self, context: Context, request: Request, message: FetchRequest) -> None:
        self._context = context
        self.request = request
        self._message = message
        self._found_bytes = 0
        self._found_error = False
        self.streams: list[Stream] = []

    def is_enough(self, message: FetchRequest) -> bool:
        return self._found_error or self._found_bytes >= min(message.min_bytes, message.max_bytes) or not self.streams

    def read(self) -> FetchResponse:
        self._found_bytes = 0
        self.streams = []
        left = min(self._message.max_bytes, _MOST_BYTES)
        responses = []
        for topic in self._message.topics:
            partitions = []
            for asked in topic.partitions:
                data = self._read_partition(topic, asked, left - self._found_bytes)
                partitions.append(data)
                self._found_bytes += len(data.records or b"")
            responses.append(FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id, partitions=partitions))
        return FetchResponse(responses=responses)

    def _read_partition(self, topic: FetchTopic, asked: FetchPartition, left: int) -> PartitionData:
        try:
            found = self._context.topic(topic.topic, topic.topic_id)
            stream = self._context.broker.readable(self._context.caller, found, asked.partition)
        except Refusal as refusal:
            code = code_of(refusal)
            if not topic.topic and code == Code.UNKNOWN_TOPIC_OR_PARTITION:
                code = Code.UNKNOWN_TOPIC_ID
            return _failed(asked.partition, code)
        self.streams.append(stream)
        try:
            return self._read_stream(stream, asked, left)
        except OffsetOutOfRange as refusal:
            self._found_error = True
            return _failed(asked.partition, code_of(refusal))
        except Refusal as refusal:
            self._found_error = True
            return _failed(asked.partition, code_of(refusal))

    def _read_stream(self, stream: Stream, asked: FetchPartition, left: int) -> PartitionData:
        stable_end = stream.stable_end
        limit = stable_end if self._message.isolation_level == _READ_COMMITTED else None
        # One batch goes out even if it is larger than the limits, or a client could never get past it.
        most = min(asked.partition_max_bytes, left) if left > 0 else 0
        is_first = self._found_bytes == 0
        data = PartitionData(
            partition_index=asked.partition,
            high_watermark=stream.readable_end,
            last_stable_offset=stable_end,
            log_start_offset=stream.start,
            aborted_transactions=[] if self._message.isolation_level == _READ_COMMITTED else None,
            records=b"",
        )
        if most > 0 or is_first:
            found = stream.read(asked.fetch_offset, max(most, 0), limit)
            if found.size <= most or is_first:
                data.records = found.parts[0] if found.parts else b""
        return data


class _Held:
    """A request that waits for bytes."""

    def __init__(self, context: Context, attempt: _Attempt, message: FetchRequest) -> None:
        self._attempt = attempt
        self._message = message
        self._watches: list[Watch] = []
        self.reply = Reply.later(abandon=self._forget)
        liveness = context.clock.liveness
        self._timer = liveness.call_at(liveness.now_ms() + message.max_wait_ms, self._over)
        self._watch()

    def _watch(self) -> None:
        self._watches = [stream.watch(self._grown) for stream in self._attempt.streams]

    def _grown(self) -> None:
        self._unwatch()
        response = self._attempt.read()
        if self._attempt.is_enough(self._message):
            self._answer(response)
        else:
            self._watch()

    def _over(self) -> None:
        self._answer(self._attempt.read())

    def _answer(self, response: FetchResponse) -> None:
        self._forget()
        self.reply.resolve(encode_response(self._attempt.request, response))

    def _unwatch(self) -> None:
        for watch in self._watches:
            watch.cancel()
        self._watches = []

    def _forget(self) -> None:
        self._unwatch()
        self._timer.cancel()


def _failed(index: int, code: Code) -> PartitionData:
    """With an error, the ends are not told."""
    return PartitionData(
        partition_index=index,
        error_code=code,
        high_watermark=-1,
        last_stable_offset=-1,
        log_start_offset=-1,
        aborted_transactions=[],
        records=b"",
    )
