"""EndTxn, versions 0 to 5: commits or aborts; answered when all partitions have markers and offsets are committed.

A repeated request for the same outcome gets the same answer. From version 5 on the broker also increments the producer
epoch and returns it; the response then waits until this state is durable, because the producer uses the new epoch
without InitProducerId.
"""

from __future__ import annotations

from trimq.core.transactions.transaction import ProducerIdentity, Transaction
from trimq.errors import Refusal
from trimq.protocols.contract import DeferredReply, Parts, Reply
from trimq.protocols.kafka.handlers.context import Context
from trimq.protocols.kafka.messages.transactions import EndTxnRequest, EndTxnResponse
from trimq.protocols.kafka.names.codes import GroupTicket, require_transactional_id, resolve_after, transaction_code
from trimq.protocols.kafka.wire.connection import Request, encode_response

_KNOWS_FENCING_SINCE = 2
_RAISES_EPOCH_SINCE = 5


def handle(context: Context, request: Request) -> Reply:
    message = request.decode(EndTxnRequest)
    producer = ProducerIdentity(message.producer_id, message.producer_epoch)
    bumps_epoch = request.api_version >= _RAISES_EPOCH_SINCE
    reply = DeferredReply()

    def answer(outcome: Transaction | Refusal, ticket: GroupTicket | None) -> None:
        needed = ticket if bumps_epoch else None
        resolve_after(reply, needed, lambda lost: _answer(request, outcome if lost is None else lost))

    try:
        require_transactional_id(message.transactional_id)
        context.broker.transactions.end(
            context.caller, message.transactional_id, producer, message.committed, bumps_epoch, answer
        )
    except Refusal as refusal:
        return Reply.now(_answer(request, refusal))
    return reply


def _answer(request: Request, outcome: Transaction | Refusal) -> Parts:
    if isinstance(outcome, Refusal):
        code = transaction_code(outcome, request.api_version >= _KNOWS_FENCING_SINCE)
        return encode_response(request, EndTxnResponse(error_code=code))
    return encode_response(request, EndTxnResponse(producer_id=outcome.producer_id, producer_epoch=outcome.epoch))


HANDLERS = {"EndTxn": handle}
