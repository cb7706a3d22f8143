"""EndTransaction: commits or rolls back a half message, for its producer or any client that knows the transaction id.
The half message is found by its id in the key index, so that it can be decided after a restart of the broker, too."""

from __future__ import annotations

from typing import Any

from trimq.errors import Refusal
from trimq.formats.rocketmq_unit.dead_letters import PRODUCER_GROUP, REAL_TOPIC
from trimq.formats.rocketmq_unit.properties import read_properties
from trimq.formats.rocketmq_unit.unit import Unit
from trimq.model import SYSTEM
from trimq.protocols.contract import Reply
from trimq.protocols.rocketmq.grpc.clients.call import Call, refusal_status, reply, reply_when_durable, status
from trimq.protocols.rocketmq.grpc.clients.name_rules import check_topic
from trimq.protocols.rocketmq.grpc.clients.text_rules import is_blank
from trimq.protocols.rocketmq.grpc.wire import wire
from trimq.protocols.rocketmq.grpc.wire.codes import GrpcRefusal
from trimq.protocols.rocketmq.grpc.wire.enums import Code, TransactionResolution, TransactionSource
from trimq.protocols.rocketmq.state.system_topics import HALF_TOPIC

_FOR_EVER_MS = 2**62


def end_transaction(call: Call, request: Any) -> Reply:
    check_topic(call, request.topic.name)
    if is_blank(request.transaction_id):
        raise GrpcRefusal(Code.INVALID_TRANSACTION_ID, "transaction id cannot be empty")
    call.commit_log.messages.require_write(call.caller, request.topic.name)
    half, group = _find_half(call, request)
    if request.resolution == TransactionResolution.TRANSACTION_RESOLUTION_UNSPECIFIED:
        return reply(wire.EndTransactionResponse(status=status()))  # the next check-back asks again
    placed = call.services.sending.transactions.decide(
        call.caller,
        group,
        half.queue_offset,
        half.position,
        request.resolution == TransactionResolution.COMMIT,
        request.source == TransactionSource.SOURCE_SERVER_CHECK,
    )

    def build(refusal: Refusal | None) -> Any:
        return wire.EndTransactionResponse(status=status() if refusal is None else refusal_status(refusal))

    return reply_when_durable([placed.ticket], build)


def _find_half(call: Call, request: Any) -> tuple[Unit, str]:
    """Returns the newest copy: each check-back stores the half message again."""
    found = call.commit_log.lookup.find_key(SYSTEM, HALF_TOPIC, request.transaction_id, 0, _FOR_EVER_MS)
    for unit in found:
        properties = read_properties(unit.properties)
        if properties.get(REAL_TOPIC) == request.topic.name:
            return unit, properties.get(PRODUCER_GROUP, "")
    raise GrpcRefusal(Code.INTERNAL_SERVER_ERROR, "unknown transaction id")
