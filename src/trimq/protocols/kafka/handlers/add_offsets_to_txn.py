"""AddOffsetsToTxn, versions 0 to 4: lets a transaction commit offsets of a group; answered when that is durable."""

from __future__ import annotations

from trimq.core.transactions.transaction import ProducerIdentity
from trimq.errors import Refusal
from trimq.protocols.contract import Parts, Reply
from trimq.protocols.kafka.handlers.context import Context
from trimq.protocols.kafka.messages.transactions import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from trimq.protocols.kafka.names.codes import (
    Code,
    reply_after,
    require_transactional_id,
    transaction_code,
)
from trimq.protocols.kafka.wire.connection import Request, encode_response

_KNOWS_FENCING_SINCE = 2


def handle(context: Context, request: Request) -> Reply:
    message = request.decode(AddOffsetsToTxnRequest)
    producer = ProducerIdentity(message.producer_id, message.producer_epoch)
    try:
        require_transactional_id(message.transactional_id)
        ticket = context.broker.transactions.add_group(
            context.caller, message.transactional_id, producer, message.group_id
        )
    except Refusal as refusal:
        return Reply.now(_answer(request, refusal))
    return reply_after(ticket, lambda lost: _answer(request, lost))


def _answer(request: Request, refusal: Refusal | None) -> Parts:
    code = Code.NONE
    if refusal is not None:
        code = transaction_code(refusal, request.api_version >= _KNOWS_FENCING_SINCE)
    return encode_response(request, AddOffsetsToTxnResponse(error_code=code))


HANDLERS = {"AddOffsetsToTxn": handle}
