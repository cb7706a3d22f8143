"""DeleteGroups, versions 0 to 2: deletes groups without members, and their committed offsets; answered when that is
durable."""

from __future__ import annotations

from trimq.errors import Refusal
from trimq.protocols.contract import Parts, Reply
from trimq.protocols.kafka.handlers.context import Context
from trimq.protocols.kafka.handlers.tickets import ChangeTickets
from trimq.protocols.kafka.messages.classic_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from trimq.protocols.kafka.names.codes import Code, group_code
from trimq.protocols.kafka.wire.connection import Request, encode_response


def handle(context: Context, request: Request) -> Reply:
    message = request.decode(DeleteGroupsRequest)
    tickets = ChangeTickets()
    refused: dict[str, Refusal] = {}
    names = list(dict.fromkeys(message.groups_names))
    for name in names:
        try:
            ticket = context.broker.groups.delete(context.caller, name)
        except Refusal as refusal:
            refused[name] = refusal
        else:
            if ticket is not None:
                tickets.add(name, ticket)

    def build() -> Parts:
        results = []
        for name in names:
            refusal = refused.get(name) or tickets.refusal(name)
            code = Code.NONE if refusal is None else group_code(refusal)
            results.append(DeletableGroupResult(group_id=name, error_code=code))
        return encode_response(request, DeleteGroupsResponse(results=results))

    return Reply.when_durable(tickets.number, build)


HANDLERS = {"DeleteGroups": handle}
