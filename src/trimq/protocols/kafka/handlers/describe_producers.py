"""DescribeProducers, version 0: returns the idempotent and transactional producers whose state a partition keeps."""

from __future__ import annotations

from trimq.core.security.resources import Action
from trimq.errors import Refusal
from trimq.protocols.contract import Reply
from trimq.protocols.kafka.handlers.context import Context
from trimq.protocols.kafka.messages.transactions import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from trimq.protocols.kafka.names.codes import code_of
from trimq.protocols.kafka.names.internal_topics import INTERNAL
from trimq.protocols.kafka.wire.connection import Request, encode_response


def handle(context: Context, request: Request) -> Reply:
    message = request.decode(DescribeProducersRequest)
    topics = [
        TopicResponse(
            name=topic.name, partitions=[_describe(context, topic.name, index) for index in topic.partition_indexes]
        )
        for topic in message.topics
    ]
    return Reply.now(encode_response(request, DescribeProducersResponse(topics=topics)))


def _describe(context: Context, topic: str, index: int) -> PartitionResponse:
    try:
        context.broker.topics.check_name(topic)
        if topic in INTERNAL:
            context.require_topic(Action.READ, topic)
            context.require_partition(topic, index)
            return PartitionResponse(partition_index=index)
        stream = context.broker.partitions.readable(context.caller, context.topic(topic, b"", Action.READ), index)
    except Refusal as refusal:
        return PartitionResponse(partition_index=index, error_code=code_of(refusal), error_message=str(refusal))
    producers = [
        ProducerState(
            producer_id=id,
            producer_epoch=state.epoch,
            last_sequence=state.last_sequence,
            last_timestamp=state.last_timestamp_ms,
            coordinator_epoch=state.coordinator_epoch,
            current_txn_start_offset=state.open_from,
        )
        for id, state in stream.log.producers.items()
    ]
    return PartitionResponse(partition_index=index, active_producers=producers)


HANDLERS = {"DescribeProducers": handle}
