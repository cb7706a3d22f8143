"""Which of Kafka's error codes a refusal about a group is, and how an answer waits for what it depends on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from trimq import errors
from trimq.errors import AccessDenied, Refusal
from trimq.errors import groups as group_refusals
from trimq.protocols.contract import DeferredReply, Parts, Reply
from trimq.protocols.kafka.names.codes import Code, KafkaRefusal, code_of

GROUP_CODES: dict[type[Refusal], Code] = {
    group_refusals.UnknownMember: Code.UNKNOWN_MEMBER_ID,
    group_refusals.MemberNameNeeded: Code.MEMBER_ID_REQUIRED,
    group_refusals.InstanceFenced: Code.FENCED_INSTANCE_ID,
    group_refusals.InstanceInUse: Code.UNRELEASED_INSTANCE_ID,
    group_refusals.StaleGeneration: Code.ILLEGAL_GENERATION,
    group_refusals.Rebalancing: Code.REBALANCE_IN_PROGRESS,
    group_refusals.NothingInCommon: Code.INCONSISTENT_GROUP_PROTOCOL,
    group_refusals.MemberEpochFenced: Code.FENCED_MEMBER_EPOCH,
    group_refusals.StaleMemberEpoch: Code.STALE_MEMBER_EPOCH,
    group_refusals.UnknownAssignor: Code.UNSUPPORTED_ASSIGNOR,
    group_refusals.InvalidPattern: Code.INVALID_REGULAR_EXPRESSION,
    group_refusals.OldWayOfSpeaking: Code.UNSUPPORTED_VERSION,
    # Of a coordinator these are retried; of anyone else they would end the consumer.
    errors.NotRunning: Code.NOT_COORDINATOR,
    errors.NotOwner: Code.NOT_COORDINATOR,
    errors.DiskFull: Code.COORDINATOR_NOT_AVAILABLE,
    errors.MemoryFull: Code.COORDINATOR_NOT_AVAILABLE,
    errors.WriteFailed: Code.COORDINATOR_NOT_AVAILABLE,
}


class GroupTicket(Protocol):
    """As a change of the broker gives it out."""

    @property
    def number(self) -> int: ...

    @property
    def refusal(self) -> Refusal | None: ...


def group_code(refusal: Refusal) -> Code:
    if isinstance(refusal, AccessDenied) and refusal.resource.startswith("group "):
        return Code.GROUP_AUTHORIZATION_FAILED
    return GROUP_CODES.get(type(refusal)) or code_of(refusal)


def require_group_id(group: str) -> None:
    if not group:
        raise KafkaRefusal(Code.INVALID_GROUP_ID, "a group has a name")


def reply_after(ticket: GroupTicket | None, build: Callable[[Refusal | None], Parts]) -> Reply:
    """`build` makes the answer when the ticket's pass is durable, and is told whether that was refused."""
    if ticket is None:
        return Reply.now(build(None))
    return Reply.when_durable(ticket.number, lambda: build(ticket.refusal))


def resolve_after(reply: DeferredReply, ticket: GroupTicket | None, build: Callable[[Refusal | None], Parts]) -> None:
    """As `reply_after`, for an answer that somebody waits for already."""
    if ticket is None:
        reply.resolve(build(None))
    else:
        reply.resolve_when_durable(ticket.number, lambda: build(ticket.refusal))
