"""ElectLeaders, versions 0 to 2: answered with ELECTION_NOT_NEEDED, because the only replica of a partition leads it.

Not served: elections.
"""

from __future__ import annotations

from collections.abc import Iterable

from trimq.core.security.resources import BROKER, Action
from trimq.errors import Refusal
from trimq.protocols.contract import Reply
from trimq.protocols.kafka.handlers.context import Context
from trimq.protocols.kafka.messages.replicas import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from trimq.protocols.kafka.names.codes import Code, KafkaRefusal, code_of
from trimq.protocols.kafka.wire.connection import Request, encode_response

_PREFERRED, _UNCLEAN = 0, 1


def handle(context: Context, request: Request) -> Reply:
    message = request.decode(ElectLeadersRequest)
    is_known = message.election_type in (_PREFERRED, _UNCLEAN)
    is_allowed = context.broker.allowed(context.caller, Action.ALTER, BROKER)
    # A request for all partitions (null) returns only those with a new leader: none.
    results = [
        ReplicaElectionResult(
            topic=asked.topic,
            partition_result=list(_answer(context, asked.topic, asked.partitions, is_known)),
        )
        for asked in message.topic_partitions or ()
    ]
    code = Code.NONE if is_known else Code.INVALID_REQUEST
    if not is_allowed:
        code = Code.CLUSTER_AUTHORIZATION_FAILED
    return Reply.now(encode_response(request, ElectLeadersResponse(error_code=code, replica_election_results=results)))


def _answer(context: Context, topic: str, partitions: list[int], is_known: bool) -> Iterable[PartitionResult]:
    for index in partitions:
        try:
            context.broker.require(context.caller, Action.ALTER, BROKER)
            if not is_known:
                raise KafkaRefusal(Code.INVALID_REQUEST, "unknown election type")
            context.require_partition(topic, index)
            code, reason = Code.ELECTION_NOT_NEEDED, "the only replica is already the leader"
        except Refusal as refusal:
            code, reason = code_of(refusal), str(refusal)
        yield PartitionResult(partition_id=index, error_code=code, error_message=reason)


HANDLERS = {"ElectLeaders": handle}
