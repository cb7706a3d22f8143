"""ListTransactions, versions 0 to 2: lists transactional ids and states, filtered by state, producer id and duration,
and in version 2 by a pattern.

The pattern is a regular expression that the whole id must match (`core.groups.topic_patterns`).
"""

from __future__ import annotations

from trimq.core.groups.topic_patterns import Pattern
from trimq.errors import Refusal
from trimq.protocols.contract import Reply
from trimq.protocols.kafka.handlers.context import Context
from trimq.protocols.kafka.messages.transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    ListTransactionsTransactionState,
)
from trimq.protocols.kafka.names.codes import group_code
from trimq.protocols.kafka.names.states import STATE_NAMES, TRANSIENT_STATE_NAMES
from trimq.protocols.kafka.wire.connection import Request, encode_response


def handle(context: Context, request: Request) -> Reply:
    message = request.decode(ListTransactionsRequest)
    try:
        pattern = Pattern(message.transactional_id_pattern) if message.transactional_id_pattern else None
    except Refusal as refusal:
        return Reply.now(encode_response(request, ListTransactionsResponse(error_code=group_code(refusal))))
    known_names = (*STATE_NAMES.values(), *TRANSIENT_STATE_NAMES)
    unknown = [name for name in message.state_filters if name not in known_names]
    now_ms = context.clock.message.now_ms()
    found = []
    for name, known in context.broker.transactions.all(context.caller):
        state = STATE_NAMES[known.state]
        if message.state_filters and state not in message.state_filters:
            continue
        if message.producer_id_filters and known.producer_id not in message.producer_id_filters:
            continue
        if message.duration_filter >= 0 and now_ms - known.started_ms <= message.duration_filter:
            continue
        if pattern is None or pattern.matches(name):
            found.append(
                ListTransactionsTransactionState(
                    transactional_id=name, producer_id=known.producer_id, transaction_state=state
                )
            )
    response = ListTransactionsResponse(unknown_state_filters=unknown, transaction_states=found)
    return Reply.now(encode_response(request, response))


HANDLERS = {"ListTransactions": handle}
