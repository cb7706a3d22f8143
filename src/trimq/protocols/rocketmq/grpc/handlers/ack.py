"""AckMessage, ChangeInvisibleDuration, ForwardMessageToDeadLetterQueue.

Acknowledges received messages, changes their invisible time, or dead-letters them. An expired receipt is refused; to
acknowledge a message twice succeeds.
Not served: lite topics."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from trimq.core.commit_log.topics import CommitLogTopic
from trimq.core.pop.acks import AckResult
from trimq.core.pop.receipts import Receipt
from trimq.errors import Refusal
from trimq.protocols.contract import Build, Reply
from trimq.protocols.rocketmq.grpc.clients.call import Call, refusal_status, reply, reply_when_durable, status
from trimq.protocols.rocketmq.grpc.clients.message_view import read_ms
from trimq.protocols.rocketmq.grpc.clients.name_rules import check_group, check_topic
from trimq.protocols.rocketmq.grpc.handlers.receive import check_invisible
from trimq.protocols.rocketmq.grpc.wire import wire
from trimq.protocols.rocketmq.grpc.wire.codes import GrpcRefusal
from trimq.protocols.rocketmq.grpc.wire.enums import Code
from trimq.protocols.rocketmq.grpc.wire.responses import encode_ack_response
from trimq.protocols.rocketmq.handlers.topic_creation import after_topic_creation
from trimq.protocols.rocketmq.wire.receipt_text import BadReceipt, ReceiptHandle, read_receipt, write_receipt
from trimq.protocols.rocketmq.wire.replies import UNORDERED, PendingWrite


class EntryAckResult(NamedTuple):
    """Result of one entry of AckMessage. `pending` is None if there is nothing to make durable."""

    id: str
    handle: str
    refusal: Refusal | None = None
    pending: PendingWrite | None = None

    @property
    def outcome(self) -> Refusal | None:
        """Returns the refusal, of the request or of the write; None: success."""
        return self.refusal or (None if self.pending is None else self.pending.refusal)

    def result(self) -> Any:
        refusal = self.outcome
        return wire.AckMessageResultEntry(
            message_id=self.id,
            receipt_handle=self.handle,
            status=status() if refusal is None else refusal_status(refusal),
        )


def ack(call: Call, request: Any) -> Reply:
    group, name = request.group.name, request.topic.name
    check_names(call, group, name)
    if not request.entries:
        raise GrpcRefusal(Code.INTERNAL_SERVER_ERROR, "the request has no entries")
    settled = ack_entries(call, group, name, [(entry.message_id, entry.receipt_handle) for entry in request.entries])
    return reply_acked(settled, lambda: [encode_ack_results(settled)])


def ack_entries(call: Call, group: str, name: str, entries: Sequence[tuple[str, str]]) -> list[EntryAckResult]:
    """Acknowledges messages of one topic, each given by message id and receipt. Every entry has a result of its own."""
    texts = [_try_to_read(handle) for _, handle in entries]
    receipts = [text.receipt for text in texts if not isinstance(text, Refusal)]
    topic, outcomes = _ack_receipts(call, group, name, receipts)
    settled, remaining = [], iter(outcomes)
    for (id, handle), text in zip(entries, texts, strict=True):
        if isinstance(text, Refusal):
            settled.append(EntryAckResult(id, handle, text))
            continue
        outcome = next(remaining)
        if outcome is None and text.receipt.pop_time_ms + text.invisible_ms <= call.services.clock.message.now_ms():
            outcome = GrpcRefusal(Code.INVALID_RECEIPT_HANDLE, "receipt handle is expired")
        if isinstance(outcome, Refusal):
            settled.append(EntryAckResult(id, handle, outcome))
            continue
        if topic is not None:
            call.renewals.drop(group, topic, text.receipt)
        settled.append(EntryAckResult(id, handle, None, outcome))
    return settled


def _ack_receipts(
    call: Call, group: str, name: str, receipts: Sequence[Receipt]
) -> tuple[CommitLogTopic | None, Sequence[AckResult]]:
    """Returns the topic and the result of each receipt. If the topic is None, every receipt is refused."""
    try:
        topic = _require_topic(call, name)
        return topic, call.commit_log.pop_service.acknowledger(call.caller, group, topic).ack_all(receipts)
    except Refusal as refusal:
        return None, [refusal] * len(receipts)


def reply_acked(settled: Iterable[EntryAckResult], build: Build) -> Reply:
    """Replies with the result of `build` when all acknowledgements are durable."""
    numbers = [each.pending.number for each in settled if each.pending is not None]
    return Reply.when_durable(max(numbers), build, UNORDERED) if numbers else Reply.now(build(), UNORDERED)


def encode_ack_results(settled: Sequence[EntryAckResult]) -> bytes:
    """Encodes the response. Call when the acknowledgements are durable."""
    if all(each.outcome is None for each in settled):
        return encode_ack_response([(each.id, each.handle) for each in settled])
    results = [each.result() for each in settled]
    codes = {result.status.code for result in results}
    overall = results[0].status if len(codes) == 1 else status(Code.MULTIPLE_RESULTS, "entries have different results")
    answer: bytes = wire.AckMessageResponse(status=overall, entries=results).SerializeToString()
    return answer


def change_invisible(call: Call, request: Any) -> Reply:
    check_names(call, request.group.name, request.topic.name)
    invisible_ms = read_ms(request.invisible_duration)
    check_invisible(call, invisible_ms)
    topic, text = _find(call, request, request.receipt_handle)
    group = request.group.name
    receipt, ticket = call.commit_log.pop_service.change_invisible(
        call.caller, group, topic, text.receipt, invisible_ms
    )
    call.renewals.drop(group, topic, text.receipt)
    handle = write_receipt(receipt, invisible_ms, text.broker_name, text.is_ordered, receipt.offset, text.position)

    def build(refusal: Refusal | None) -> Any:
        if refusal is not None:
            return wire.ChangeInvisibleDurationResponse(status=refusal_status(refusal))
        return wire.ChangeInvisibleDurationResponse(status=status(), receipt_handle=handle)

    return reply_when_durable([ticket], build)


def forward(call: Call, request: Any) -> Reply:
    check_names(call, request.group.name, request.topic.name)
    topic, text = _find(call, request, request.receipt_handle)
    group = request.group.name

    def build(refusal: Refusal | None) -> Any:
        outcome = status() if refusal is None else refusal_status(refusal)
        return wire.ForwardMessageToDeadLetterQueueResponse(status=outcome)

    dead = call.commit_log.pop_service.dead_letters(call.caller, group, topic, text.receipt)
    later = after_topic_creation(call, dead, lambda: forward(call, request), lambda refusal: reply(build(refusal)))
    if later is not None:
        return later
    ticket = call.commit_log.pop_service.forward_to_dlq(call.caller, group, topic, text.receipt)
    call.renewals.drop(group, topic, text.receipt)
    return reply_when_durable([ticket], build)


def check_names(call: Call, group: str, topic: str) -> None:
    check_topic(call, topic)
    check_group(group)


def _find(call: Call, request: Any, handle: str) -> tuple[CommitLogTopic, ReceiptHandle]:
    text = _read(handle)
    return _require_topic(call, request.topic.name), text


def _require_topic(call: Call, name: str) -> CommitLogTopic:
    topic = call.commit_log.topics.find(call.caller, name)
    if topic is None:
        raise GrpcRefusal(Code.INTERNAL_SERVER_ERROR, f"there is no topic {name}")
    return topic


def _read(handle: str) -> ReceiptHandle:
    found = _try_to_read(handle)
    if isinstance(found, Refusal):
        raise found
    return found


def _try_to_read(handle: str) -> ReceiptHandle | GrpcRefusal:
    try:
        return read_receipt(handle)
    except BadReceipt as error:
        return GrpcRefusal(Code.INTERNAL_SERVER_ERROR, str(error))
