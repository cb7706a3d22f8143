"""The server's side of the small protocol: each request calls an operation of the broker, and its reply is sent when
that is durable. In one kind of conversation replies are sent in the order of requests, in the other when they are
ready."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from small_protocol import (
    Append,
    AppendBatch,
    Commit,
    Create,
    Cut,
    Delete,
    List,
    Read,
    Request,
    ServerConnection,
    encode_read,
    encode_refusal,
    encode_value,
)

from trimq.clock import Clock
from trimq.core.assembly.core import Core
from trimq.core.partitions.stream import Stream
from trimq.core.partitions.topics import Topic
from trimq.core.scheduling.waiters import Watch
from trimq.errors import ProtocolError, Refusal
from trimq.formats.kafka_batch.header import check_sent
from trimq.model import Caller, Layout, Record, StreamId
from trimq.protocols.contract import ConnectionDetails, DeferredReply, Parts, Reply, SessionControl
from trimq.storage.group_commit.passes import Ticket


class SmallFrontEnd:
    def __init__(self, core: Core, clock: Clock, lane: object) -> None:
        self._core = core
        self._broker = core.broker
        self._clock = clock
        self._lane = lane

    def open_conversation(self, address: str, outlet: SessionControl) -> SmallConversation:
        return SmallConversation(self._core, self._clock, self._lane, address)


class SmallConversation:
    def __init__(self, core: Core, clock: Clock, lane: object, address: str) -> None:
        self._core = core
        self._broker = core.broker
        self._clock = clock
        self._lane = lane
        self._caller = Caller("anonymous", "", address, "small")
        self._connection = ServerConnection()
        self.get_buffer = self._connection.get_buffer
        self.buffer_updated = self._connection.buffer_updated
        self.next_event = self._connection.next_event

    def handle(self, event: object) -> Reply:
        assert isinstance(event, tuple)
        id, request = event
        try:
            return self._serve(id, request)
        except Refusal as refusal:
            return Reply.now(encode_refusal(id, refusal), self._lane)

    def release_memory(self) -> bool:
        return True

    def on_congestion_end(self) -> None:
        """Nothing to do: this protocol has no unrequested deliveries."""

    def closing_parts(self, error: ProtocolError) -> Parts:
        return []

    def describe(self) -> ConnectionDetails:
        return ConnectionDetails()

    def closed(self) -> None:
        """Nothing to do: a connection holds nothing beyond its replies."""

    # -- operations

    def _serve(self, id: int, request: Request) -> Reply:
        broker, caller = self._broker, self._caller
        if isinstance(request, List):
            found = [[topic.name.name, topic.id.bytes, len(topic.streams)] for topic in broker.topics.all(caller)]
            return Reply.now(encode_value(id, [found, bytes(request.echo_bytes)]), self._lane)
        if isinstance(request, Create):
            topic, ticket = broker.topics.create(
                caller, request.name, Layout.PARTITION_LOG, request.streams, request.settings
            )
            return self._when_durable(id, ticket, topic.id.bytes)
        topic = broker.topics.by_id(caller, UUID(bytes=request.topic))
        if isinstance(request, Delete):
            return self._when_durable(id, broker.topics.delete(caller, topic), None)
        if isinstance(request, Append | AppendBatch):
            return self._append(id, topic, request)
        if isinstance(request, Read):
            return LongPoll(self._clock, self._lane, lambda: self._find(request), id, request).reply
        if isinstance(request, Cut):
            return self._when_durable(
                id, broker.partitions.cut_head(caller, topic, request.stream, request.offset), None
            )
        if isinstance(request, Commit):
            ticket = broker.partitions.commit(caller, request.group, topic, request.stream, request.offset)
            return self._when_durable(id, ticket, None)
        cursor = self._core.cursors.all(request.group).get(StreamId(topic.id, request.stream))
        return Reply.now(encode_value(id, None if cursor is None else cursor.offset), self._lane)

    def _append(self, id: int, topic: Topic, request: Append | AppendBatch) -> Reply:
        stream = topic.stream(request.stream)
        if isinstance(request, AppendBatch):
            appended = self._broker.partitions.append(
                self._caller, topic, stream, request.batch, check_sent(request.batch)
            )
        else:
            records = [Record(body, timestamp_ms=request.time_ms) for body in request.bodies]
            appended = self._broker.partitions.append_records(self._caller, topic, stream, records)
        return self._when_durable(id, appended.ticket, appended.base_offset)

    def _find(self, request: Read) -> Stream:
        topic = self._broker.topics.by_id(self._caller, UUID(bytes=request.topic))
        return self._broker.partitions.readable(self._caller, topic, request.stream)

    def _when_durable(self, id: int, ticket: Ticket, value: object) -> Reply:
        def build() -> Parts:
            return encode_value(id, value) if ticket.refusal is None else encode_refusal(id, ticket.refusal)

        return Reply.when_durable(ticket.number, build, self._lane)


class LongPoll:
    """A read that waits for more data, up to its time limit."""

    def __init__(self, clock: Clock, lane: object, find: Callable[[], Stream], id: int, request: Read) -> None:
        self._find = find
        self._id = id
        self._request = request
        self._watch: Watch | None = None
        stream = find()
        if self._has_enough(stream):
            self.reply = Reply.now(self._read(stream), lane)
            return
        self.reply = DeferredReply(lane, self._forget)
        self._timer = clock.liveness.call_at(clock.liveness.now_ms() + request.wait_ms, self._answer)
        self._watch = stream.watch(self._grown)

    def _has_enough(self, stream: Stream) -> bool:
        return self._request.wait_ms <= 0 or self._request.offset != stream.readable_end

    def _read(self, stream: Stream) -> Parts:
        found = stream.read(self._request.offset, self._request.max_bytes)
        return encode_read(self._id, stream.start, stream.readable_end, list(found.parts))

    def _grown(self) -> None:
        try:
            stream = self._find()
        except Refusal:
            self._answer()
            return
        if self._has_enough(stream):
            self._answer()
        else:
            self._watch = stream.watch(self._grown)

    def _answer(self) -> None:
        self._forget()
        try:
            parts = self._read(self._find())
        except Refusal as refusal:
            parts = encode_refusal(self._id, refusal)
        self.reply.resolve(parts)

    def _forget(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
        self._timer.cancel()
