"""AckMessage, ChangeInvisibleDuration and ForwardMessageToDeadLetterQueue: what becomes of messages that were received.

A receipt that counts no longer is told so; one whose message was acknowledged already is no mistake."""

from __future__ import annotations

from typing import Any, NamedTuple

from trimq.core.shared_topics import SharedTopic
from trimq.errors import Refusal
from trimq.protocols.contract import Parts, Reply
from trimq.protocols.rocketmq.grpc import wire
from trimq.protocols.rocketmq.grpc.answers import answer_acked
from trimq.protocols.rocketmq.grpc.calls import Call, refused, reply, reply_when_durable, status
from trimq.protocols.rocketmq.grpc.codes import Denied
from trimq.protocols.rocketmq.grpc.handlers.receiving import check_invisible
from trimq.protocols.rocketmq.grpc.names import check_group, check_topic
from trimq.protocols.rocketmq.grpc.presenting import read_ms
from trimq.protocols.rocketmq.grpc.words import Code
from trimq.protocols.rocketmq.handlers.new_topics import when_made
from trimq.protocols.rocketmq.handlers.replies import UNORDERED, Pending
from trimq.protocols.rocketmq.receipts import BadReceipt, ReceiptText, read_receipt, write_receipt


class _Settled(NamedTuple):
    """One entry of an acknowledgement. `pending` is None where nothing has to become durable."""

    id: str
    handle: str
    refusal: Refusal | None = None
    pending: Pending | None = None

    def result(self) -> Any:
        refusal = self.refusal or (None if self.pending is None else self.pending.refusal)
        return wire.AckMessageResultEntry(
            message_id=self.id,
            receipt_handle=self.handle,
            status=status() if refusal is None else refused(refusal),
        )


def ack(call: Call, request: Any) -> Reply:
    _check(call, request)
    if not request.entries:
        raise Denied(Code.INTERNAL_SERVER_ERROR, "there is nothing to acknowledge")
    settled = _settle_all(call, request)
    numbers = [each.pending.number for each in settled if each.pending is not None]

    def build() -> Parts:
        if all(each.refusal is None and (each.pending is None or each.pending.refusal is None) for each in settled):
            return [answer_acked([(each.id, each.handle) for each in settled])]
        results = [each.result() for each in settled]
        codes = {result.status.code for result in results}
        told = results[0].status if len(codes) == 1 else status(Code.MULTIPLE_RESULTS, "not all went alike")
        return [wire.AckMessageResponse(status=told, entries=results).SerializeToString()]

    return Reply.when_durable(max(numbers), build, UNORDERED) if numbers else Reply.now(build(), UNORDERED)


def _settle_all(call: Call, request: Any) -> list[_Settled]:
    """Each for itself: what is wrong with one is told for that one."""
    group = request.group.name
    topic, settler = None, None
    missing: Refusal = _no_topic(request)
    try:
        topic = call.sharing.find(call.caller, request.topic.name)
        settler = None if topic is None else call.sharing.popping.settler(call.caller, group, topic)
    except Refusal as found:
        missing = found
    settled = []
    for entry in request.entries:
        id, handle = entry.message_id, entry.receipt_handle
        refusal, ticket = None, None
        try:
            text = _read(handle)
            if topic is None or settler is None:
                raise missing
            ticket = settler.ack(text.receipt)
            if ticket is None and text.receipt.taken_ms + text.invisible_ms <= call.shared.clock.message.now_ms():
                raise Denied(Code.INVALID_RECEIPT_HANDLE, "receipt handle is expired")
            call.renewals.drop(group, topic, text.receipt)
        except Refusal as found:
            refusal = found
        settled.append(_Settled(id, handle, refusal, ticket))
    return settled


def change_invisible(call: Call, request: Any) -> Reply:
    _check(call, request)
    invisible_ms = read_ms(request.invisible_duration)
    check_invisible(call, invisible_ms)
    topic, text = _find(call, request, request.receipt_handle)
    group = request.group.name
    receipt, ticket = call.sharing.popping.change_invisible(call.caller, group, topic, text.receipt, invisible_ms)
    call.renewals.drop(group, topic, text.receipt)
    handle = write_receipt(receipt, invisible_ms, text.broker_name, text.is_ordered, receipt.offset, text.position)

    def build(refusal: Refusal | None) -> Any:
        if refusal is not None:
            return wire.ChangeInvisibleDurationResponse(status=refused(refusal))
        return wire.ChangeInvisibleDurationResponse(status=status(), receipt_handle=handle)

    return reply_when_durable([ticket], build)


def forward(call: Call, request: Any) -> Reply:
    _check(call, request)
    topic, text = _find(call, request, request.receipt_handle)
    group = request.group.name

    def build(refusal: Refusal | None) -> Any:
        told = status() if refusal is None else refused(refusal)
        return wire.ForwardMessageToDeadLetterQueueResponse(status=told)

    dead = call.sharing.popping.dead_letters(call.caller, group, topic, text.receipt)
    later = when_made(call, dead, lambda: forward(call, request), lambda refusal: reply(build(refusal)))
    if later is not None:
        return later
    ticket = call.sharing.popping.forward_to_dlq(call.caller, group, topic, text.receipt)
    call.renewals.drop(group, topic, text.receipt)
    return reply_when_durable([ticket], build)


def _check(call: Call, request: Any) -> None:
    check_topic(call, request.topic.name)
    check_group(request.group.name)


def _find(call: Call, request: Any, handle: str) -> tuple[SharedTopic, ReceiptText]:
    text = _read(handle)
    topic = call.sharing.find(call.caller, request.topic.name)
    if topic is None:
        raise _no_topic(request)
    return topic, text


def _read(handle: str) -> ReceiptText:
    try:
        return read_receipt(handle)
    except BadReceipt as error:
        raise Denied(Code.INTERNAL_SERVER_ERROR, str(error)) from None


def _no_topic(request: Any) -> Denied:
    return Denied(Code.INTERNAL_SERVER_ERROR, f"there is no topic {request.topic.name}")
