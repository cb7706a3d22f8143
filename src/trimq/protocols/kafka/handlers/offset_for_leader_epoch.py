"""OffsetForLeaderEpoch, versions 2 to 4: returns the end offset of a leader epoch, so that a client detects whether
records that it has read were truncated."""

from __future__ import annotations

from trimq.core.security.resources import BROKER, Action
from trimq.errors import Refusal
from trimq.protocols.contract import Reply
from trimq.protocols.kafka.handlers.context import Context, ReadableStream, refuse_internal
from trimq.protocols.kafka.messages.logs import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from trimq.protocols.kafka.names.codes import code_of
from trimq.protocols.kafka.wire.connection import Request, encode_response

_UNDEFINED = (-1, -1)
_NOT_CHECKED = -1


def handle(context: Context, request: Request) -> Reply:
    message = request.decode(OffsetForLeaderEpochRequest)
    topics = [
        OffsetForLeaderTopicResult(
            topic=topic.topic, partitions=[_answer(context, topic.topic, asked) for asked in topic.partitions]
        )
        for topic in message.topics
    ]
    return Reply.now(encode_response(request, OffsetForLeaderEpochResponse(topics=topics)))


def _answer(context: Context, topic: str, asked: OffsetForLeaderPartition) -> EpochEndOffset:
    try:
        is_node = context.broker.allowed(context.caller, Action.CLUSTER_ACTION, BROKER)
        if is_node:
            refuse_internal(topic)
        stream = (context.any_topic(topic) if is_node else context.readable_topic(topic, b"")).stream(asked.partition)
        if asked.current_leader_epoch != _NOT_CHECKED:
            context.broker.cluster.require_epoch(stream.id, asked.current_leader_epoch)
        epoch, end = find_end(stream, asked.leader_epoch, context.broker.cluster.leader_epoch(stream.id))
    except Refusal as refusal:
        return EpochEndOffset(partition=asked.partition, error_code=code_of(refusal))
    return EpochEndOffset(partition=asked.partition, leader_epoch=epoch, end_offset=end)


def find_end(stream: ReadableStream, asked: int, current: int) -> tuple[int, int]:
    """Returns the last epoch not after `asked`, and its end offset. `current` counts even without records."""
    if asked == current:
        return current, stream.readable_end
    if asked < _NOT_CHECKED:  # as in Kafka, the start of the first epoch after it
        return asked, stream.start
    if not 0 <= asked < current:
        return _UNDEFINED
    found = asked
    for epoch, start_offset in stream.log.epochs:
        if epoch > asked:
            return found, start_offset
        found = epoch
    return found, stream.readable_end


HANDLERS = {"OffsetForLeaderEpoch": handle}
