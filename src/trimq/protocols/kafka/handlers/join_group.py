"""JoinGroup, versions 0 to 9: joins, or rejoins, a group whose leader assigns the partitions (classic protocol).

Answered when all other members have joined, or their time is over. The metadata of members is opaque and passed to the
leader only. From version 4 on, a new member gets an id and must join again with it; version 5 adds static members;
version 9 lets a returning leader skip the assignment.
In a group with members of the newer protocol (KIP-848) a consumer is answered at once: the broker assigns its
partitions, and there is no leader.
"""

from __future__ import annotations

from trimq.core.groups.group import GroupKind, JoinRequest, JoinResult, OfferedProtocol, SyncResult
from trimq.errors import AccessDenied, Refusal
from trimq.errors.groups import InstanceFenced, MemberNameNeeded, Rebalancing
from trimq.model import Caller
from trimq.protocols.contract import DeferredReply, Parts, Reply
from trimq.protocols.kafka.handlers.context import Context
from trimq.protocols.kafka.messages.classic_groups import (
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
)
from trimq.protocols.kafka.names.codes import (
    Code,
    GroupTicket,
    KafkaRefusal,
    group_code,
    require_group_id,
    resolve_after,
)
from trimq.protocols.kafka.wire.connection import Request, encode_response

_MIN_SESSION_MS, _MAX_SESSION_MS = 6_000, 1_800_000


def handle(context: Context, request: Request) -> Reply:
    message = request.decode(JoinGroupRequest)
    reply = DeferredReply()

    def answer(outcome: JoinResult | SyncResult | Refusal, ticket: GroupTicket | None) -> None:
        def build(lost: Refusal | None) -> Parts:
            if lost is None and isinstance(outcome, JoinResult):
                return encode_response(request, _joined(outcome))
            refusal = lost if lost is not None else outcome
            assert isinstance(refusal, Refusal)
            return _refused(context, request, message, refusal)

        resolve_after(reply, ticket, build)

    try:
        require_group_id(message.group_id)
        asked = _read_request(context.caller, request.api_version, message)
        context.broker.groups.join(context.caller, message.group_id, asked, answer)
    except Refusal as refusal:
        return Reply.now(_refused(context, request, message, refusal))
    return reply


def _read_request(caller: Caller, version: int, message: JoinGroupRequest) -> JoinRequest:
    session_ms = message.session_timeout_ms
    if not _MIN_SESSION_MS <= session_ms <= _MAX_SESSION_MS:
        limits = f"{_MIN_SESSION_MS} to {_MAX_SESSION_MS} ms"
        raise KafkaRefusal(Code.INVALID_SESSION_TIMEOUT, f"the session timeout must be {limits}, not {session_ms}")
    return JoinRequest(
        member=message.member_id,
        instance=message.group_instance_id,
        protocol_type=message.protocol_type,
        offers=tuple(OfferedProtocol(offered.name, offered.metadata) for offered in message.protocols),
        session_ms=session_ms,
        # Version 0 has no rebalance timeout: the session timeout replaces it, as for values that are not positive.
        rebalance_ms=message.rebalance_timeout_ms if message.rebalance_timeout_ms > 0 else session_ms,
        client_id=caller.client_id,
        host=caller.address.rpartition(":")[0],
        requires_member_id=version >= 4,
        may_skip_assignment=version >= 9,
    )


def _joined(outcome: JoinResult) -> JoinGroupResponse:
    members = [
        JoinGroupResponseMember(member_id=each.member, group_instance_id=each.instance, metadata=each.metadata)
        for each in outcome.members
    ]
    return JoinGroupResponse(
        generation_id=outcome.generation,
        protocol_type=outcome.protocol_type,
        protocol_name=outcome.strategy,
        leader=outcome.leader,
        skip_assignment=outcome.skips_assignment,
        member_id=outcome.member,
        members=members,
    )


def _refused(context: Context, request: Request, message: JoinGroupRequest, refusal: Refusal) -> Parts:
    given = refusal.member if isinstance(refusal, MemberNameNeeded | Rebalancing | InstanceFenced) else ""
    is_silent = not isinstance(refusal, AccessDenied) and _is_assigned_by_broker(context, message.group_id)
    response = JoinGroupResponse(
        error_code=group_code(refusal),
        protocol_name=None if request.api_version >= 7 else "",
        member_id=given or ("" if is_silent else message.member_id),
    )
    return encode_response(request, response)


def _is_assigned_by_broker(context: Context, group: str) -> bool:
    """As in Kafka, such a group does not repeat the member id of a request that it refuses."""
    try:
        return context.broker.groups.describe(context.caller, group).kind is GroupKind.BROKER_ASSIGNED
    except Refusal:
        return False


HANDLERS = {"JoinGroup": handle}
