"""ReceiveMessage: delivers messages of any queue of a topic to the first consumer of a group that asks, at once or by
long poll.

The response is a stream: status, messages, delivery time. All queues are read, whichever the request names, as in the
proxy of Apache RocketMQ: clients name one queue at a time, and would wait for it while others have messages. A client
that has not sent its settings is served, too: some send them again late after a restart of the broker.
Not served: lite topics."""

from __future__ import annotations

from typing import Any

from trimq.core.commit_log.stream import MessageFilter
from trimq.core.commit_log.topics import CommitLogTopic
from trimq.core.pop.receipts import PopRequest, PopResult
from trimq.errors import Refusal
from trimq.formats.rocketmq_unit.properties import TAGS, find_property
from trimq.protocols.contract import Parts, Reply
from trimq.protocols.rocketmq.clients.subscriptions import SQL, TAG, read_interest, split_tags
from trimq.protocols.rocketmq.grpc.clients.auto_renew import INVISIBLE_MS
from trimq.protocols.rocketmq.grpc.clients.call import Call, refusal_status, status
from trimq.protocols.rocketmq.grpc.clients.message_view import encode_message, read_ms, set_ms
from trimq.protocols.rocketmq.grpc.clients.name_rules import check_group, check_topic
from trimq.protocols.rocketmq.grpc.clients.settings import BATCH_SIZE, LONG_POLL_MS
from trimq.protocols.rocketmq.grpc.handlers.route import not_received
from trimq.protocols.rocketmq.grpc.wire import wire
from trimq.protocols.rocketmq.grpc.wire.codes import GrpcRefusal
from trimq.protocols.rocketmq.grpc.wire.enums import Code, FilterType
from trimq.protocols.rocketmq.grpc.wire.fields import field
from trimq.protocols.rocketmq.handlers.pop import find_topic, queues_to_read
from trimq.protocols.rocketmq.waiting.pop_requests import PopOperation
from trimq.protocols.rocketmq.wire.receipt_text import first_offsets, write_receipt
from trimq.protocols.rocketmq.wire.replies import UNORDERED

# Time for the response to reach the client: half of the usual request timeout of clients.
_MARGIN_MS = 1500
_MIN_POLL_MS = 5000
_MIN_INVISIBLE_MS = 10_000
_ALL_QUEUES = -1
_KNOWS_POLLING_TIME = "5.0.3"  # the first version of clients with this code

_MESSAGE = b"\x12"  # tag of `message` in a response


def receive(call: Call, request: Any) -> Reply:
    try:
        wait_ms = _wait_ms(call, request)
        return _pop_operation(call, request).take(wait_ms)
    except Refusal as refusal:
        return Reply.now(_refused(call, refusal), UNORDERED)


def _wait_ms(call: Call, request: Any) -> int:
    """Returns the wait that the client wants, within limits, shortened to respond before its deadline."""
    remaining_ms = LONG_POLL_MS if call.remaining_ms is None else call.remaining_ms
    in_time_ms = remaining_ms if call.remaining_ms is None else remaining_ms - min(_MARGIN_MS, remaining_ms // 4)
    asked_ms = read_ms(request.long_polling_timeout) if request.HasField("long_polling_timeout") else in_time_ms
    wait_ms = min(max(asked_ms, _MIN_POLL_MS), LONG_POLL_MS)
    if wait_ms > remaining_ms < _MIN_POLL_MS:
        code = Code.ILLEGAL_POLLING_TIME if call.version >= _KNOWS_POLLING_TIME else Code.BAD_REQUEST
        raise GrpcRefusal(code, "the time until the deadline is too short for a long poll")
    return min(wait_ms, in_time_ms)


def _pop_operation(call: Call, request: Any) -> PopOperation:
    group, name = request.group.name, request.message_queue.topic.name
    check_topic(call, name)
    check_group(group)
    invisible_ms = INVISIBLE_MS if request.auto_renew else read_ms(request.invisible_duration)
    check_invisible(call, invisible_ms, _MIN_INVISIBLE_MS)
    message_filter = _interest(call, request.filter_expression)
    topic = _topic(call, group, name)
    pop_request = PopRequest(
        queues_to_read(call, topic, _ALL_QUEUES),
        min(max(request.batch_size, 1), BATCH_SIZE),
        invisible_ms,
        message_filter,
        from_end=True,
        is_ordered=call.get_or_create_group(group).is_orderly,
        attempt_id=request.attempt_id,
    )

    def build(received: PopResult | Refusal) -> Parts:
        if isinstance(received, Refusal):
            return _refused(call, received)
        # Not for an unknown client: the broker would not notice its end, and renew until the limit of 3 hours.
        if request.auto_renew and call.known.find(call.client_id) is not None:
            for popped in received.messages:
                call.renewals.add(call.client_id, group, topic, popped.receipt)
        return _encode_messages(call, topic, pop_request, received)

    return PopOperation(call.services.consuming.pop, call.caller, group, topic, pop_request, _ALL_QUEUES, build)


def check_invisible(call: Call, invisible_ms: int, min_ms: int = 0) -> None:
    limit_ms = call.services.settings.pop_invisible_limit_ms
    if invisible_ms < min_ms:
        raise GrpcRefusal(Code.ILLEGAL_INVISIBLE_TIME, f"the invisibleTime is too small. min is {min_ms}")
    if invisible_ms > limit_ms:
        raise GrpcRefusal(Code.ILLEGAL_INVISIBLE_TIME, f"the invisibleTime is too large. max is {limit_ms}")


def _topic(call: Call, group: str, name: str) -> CommitLogTopic:
    """An unknown topic is INTERNAL_SERVER_ERROR, as in the proxy of Apache RocketMQ, which gets the error from a
    broker."""
    if call.commit_log.topics.find(call.caller, name) is None:
        if call.foreign_topic(name) is not None:
            raise GrpcRefusal(Code.FORBIDDEN, not_received(name))
        raise GrpcRefusal(Code.INTERNAL_SERVER_ERROR, f"there is no topic {name}")
    return find_topic(call, group, name)


def check_expression(expression: Any) -> None:
    """Refuses an SQL expression that is empty, and tags that are only separators."""
    text = expression.expression
    if not text if expression.type == FilterType.SQL else text and not text.replace("||", ""):
        raise GrpcRefusal(Code.ILLEGAL_FILTER_EXPRESSION, f"the filter expression {text[:40]!r} is empty")


def _interest(call: Call, expression: Any) -> MessageFilter | None:
    """Compares the text of tags, not only their hash: gRPC clients do not check tags again."""
    check_expression(expression)
    text = expression.expression
    if expression.type == FilterType.SQL:
        return read_interest(text, SQL, call.filter_limits)
    message_filter = read_interest(text, TAG, call.filter_limits)
    if message_filter is None:
        return None
    tags = frozenset(split_tags(text))
    return message_filter._replace(properties=lambda raw: find_property(raw, TAGS) in tags)


def _encode_messages(call: Call, topic: CommitLogTopic, pop_request: PopRequest, received: PopResult) -> Parts:
    if not received.messages:
        return _framed(call, [], status(Code.MESSAGE_NOT_FOUND, "no new message"))
    begins = first_offsets(received.messages)
    broker = call.services.identity.broker_name
    name = topic.name.name
    parts = []
    for popped in received.messages:
        unit, receipt = popped.unit(), popped.receipt
        start = begins[receipt.is_retry, receipt.number]
        handle = write_receipt(receipt, pop_request.invisible_ms, broker, pop_request.is_ordered, start, unit.position)
        before = popped.tries if pop_request.is_ordered else unit.reconsume_times
        parts.append(field(_MESSAGE, encode_message(unit, name, handle, before + 1)))
    return _framed(call, parts, status())


def _refused(call: Call, refusal: Refusal) -> Parts:
    return _framed(call, [], refusal_status(refusal))


def _framed(call: Call, parts: list[bytes], outcome: Any) -> Parts:
    end = wire.ReceiveMessageResponse()
    set_ms(end.delivery_timestamp, call.services.clock.message.now_ms())
    return [wire.ReceiveMessageResponse(status=outcome).SerializeToString(), *parts, end.SerializeToString()]
