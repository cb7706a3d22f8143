"""AlterPartitionReassignments, versions 0 and 1, and ListPartitionReassignments, version 0: a partition can be assigned
to this node only, where it already is; the list of reassignments is always empty.

Not served: reassignments to other nodes (refused).
"""

from __future__ import annotations

from trimq.core.security.resources import BROKER, Action
from trimq.errors import AccessDenied, Refusal
from trimq.protocols.contract import Reply
from trimq.protocols.kafka.handlers.context import Context
from trimq.protocols.kafka.handlers.create_topics import refuse_replicas
from trimq.protocols.kafka.messages.replicas import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from trimq.protocols.kafka.names.codes import Code, KafkaRefusal, code_of
from trimq.protocols.kafka.wire.connection import Request, encode_response


def handle_alter(context: Context, request: Request) -> Reply:
    message = request.decode(AlterPartitionReassignmentsRequest)
    try:
        context.broker.require(context.caller, Action.ALTER, BROKER)
    except AccessDenied as refusal:
        failed = AlterPartitionReassignmentsResponse(error_code=code_of(refusal), error_message=str(refusal))
        return Reply.now(encode_response(request, failed))
    responses = [
        ReassignableTopicResponse(
            name=topic.name, partitions=[_answer(context, topic.name, asked) for asked in topic.partitions]
        )
        for topic in message.topics
    ]
    response = AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=message.allow_replication_factor_change,
        error_message=None,
        responses=responses,
    )
    return Reply.now(encode_response(request, response))


def _answer(context: Context, topic: str, asked: ReassignablePartition) -> ReassignablePartitionResponse:
    try:
        context.require_partition(topic, asked.partition_index)
        if asked.replicas is None:
            raise KafkaRefusal(Code.NO_REASSIGNMENT_IN_PROGRESS, "no reassignment of this partition is in progress")
        refuse_replicas(context, asked.replicas)
    except Refusal as refusal:
        return ReassignablePartitionResponse(
            partition_index=asked.partition_index, error_code=code_of(refusal), error_message=str(refusal)
        )
    return ReassignablePartitionResponse(partition_index=asked.partition_index, error_message=None)


def handle_list(context: Context, request: Request) -> Reply:
    request.decode(ListPartitionReassignmentsRequest)
    try:
        context.broker.require(context.caller, Action.DESCRIBE, BROKER)
    except AccessDenied as refusal:
        failed = ListPartitionReassignmentsResponse(error_code=code_of(refusal), error_message=str(refusal))
        return Reply.now(encode_response(request, failed))
    return Reply.now(encode_response(request, ListPartitionReassignmentsResponse(error_message=None)))


HANDLERS = {"AlterPartitionReassignments": handle_alter, "ListPartitionReassignments": handle_list}
