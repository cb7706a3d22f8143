"""InitProducerId, versions 0 to 5: returns a producer id, or the next epoch of a transactional producer.

Fences the previous producer of the transactional id. If that has an open transaction, it is aborted first, and the
client gets CONCURRENT_TRANSACTIONS until then. From version 3 on a producer may send its id and epoch, which must be
the current ones.
Not served: two-phase commit.
"""

from __future__ import annotations

from trimq.core.transactions.transaction import ProducerIdentity
from trimq.errors import Refusal
from trimq.protocols.contract import Parts, Reply
from trimq.protocols.kafka.handlers.context import Context
from trimq.protocols.kafka.messages.transactions import InitProducerIdRequest, InitProducerIdResponse
from trimq.protocols.kafka.names.codes import (
    Code,
    GroupTicket,
    KafkaRefusal,
    reply_after,
    require_transactional_id,
    transaction_code,
)
from trimq.protocols.kafka.wire.connection import Request, encode_response

_KNOWS_FENCING_SINCE = 4
_NONE = -1


def handle(context: Context, request: Request) -> Reply:
    message = request.decode(InitProducerIdRequest)
    try:
        producer, ticket = _take(context, message)
    except Refusal as refusal:
        return Reply.now(encode_response(request, _failed(request, refusal)))

    def build(lost: Refusal | None) -> Parts:
        if lost is not None:
            return encode_response(request, _failed(request, lost))
        response = InitProducerIdResponse(producer_id=producer.id, producer_epoch=producer.epoch)
        return encode_response(request, response)

    return reply_after(ticket, build)


def _take(context: Context, message: InitProducerIdRequest) -> tuple[ProducerIdentity, GroupTicket | None]:
    name = message.transactional_id
    transactions = context.broker.transactions
    if name is None:
        new = transactions.allocate_producer_id(context.caller)
        return ProducerIdentity(new.id, 0), new.ticket
    require_transactional_id(name)
    taken, ticket = transactions.init_producer(context.caller, name, _claimed(message), message.transaction_timeout_ms)
    return taken.producer, ticket


def _claimed(message: InitProducerIdRequest) -> ProducerIdentity | None:
    if (message.producer_id == _NONE) != (message.producer_epoch == _NONE):
        raise KafkaRefusal(Code.INVALID_REQUEST, "producer id and epoch must be given together")
    return None if message.producer_id == _NONE else ProducerIdentity(message.producer_id, message.producer_epoch)


def _failed(request: Request, refusal: Refusal) -> InitProducerIdResponse:
    code = transaction_code(refusal, request.api_version >= _KNOWS_FENCING_SINCE)
    return InitProducerIdResponse(error_code=code, producer_id=_NONE, producer_epoch=_NONE)


HANDLERS = {"InitProducerId": handle}
