"""Kafka's error codes, and the mapping of refusals to them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

from trimq import errors
from trimq.errors import Refusal
from trimq.errors import groups as group_refusals
from trimq.errors import transactions as transaction_refusals
from trimq.errors.transactions import ProducerFenced
from trimq.formats.kafka_batch.header import BadBatch, BadChecksum, BadLength, OldMagic, UnsupportedMagic
from trimq.formats.kafka_batch.records import BadPayload, BatchTooLarge
from trimq.protocols.contract import DeferredReply, Parts, Reply


class Code(IntEnum):
    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    MESSAGE_TOO_LARGE = 10
    OFFSET_METADATA_TOO_LARGE = 12
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_TOPIC = 17
    INVALID_REQUIRED_ACKS = 21
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    INVALID_REQUEST = 42
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_ID_MAPPING = 49
    INVALID_TRANSACTION_TIMEOUT = 50
    CONCURRENT_TRANSACTIONS = 51
    TRANSACTION_COORDINATOR_FENCED = 52
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    SECURITY_DISABLED = 54
    OPERATION_NOT_ATTEMPTED = 55
    KAFKA_STORAGE_ERROR = 56
    LOG_DIR_NOT_FOUND = 57
    SASL_AUTHENTICATION_FAILED = 58
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    FETCH_SESSION_ID_NOT_FOUND = 70
    INVALID_FETCH_SESSION_EPOCH = 71
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    UNSUPPORTED_COMPRESSION_TYPE = 76
    MEMBER_ID_REQUIRED = 79
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    ELECTION_NOT_NEEDED = 84
    NO_REASSIGNMENT_IN_PROGRESS = 85
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    INVALID_RECORD = 87
    UNSTABLE_OFFSET_COMMIT = 88
    THROTTLING_QUOTA_EXCEEDED = 89
    PRODUCER_FENCED = 90
    RESOURCE_NOT_FOUND = 91
    DUPLICATE_RESOURCE = 92
    UNACCEPTABLE_CREDENTIAL = 93
    UNKNOWN_TOPIC_ID = 100
    TRANSACTIONAL_ID_NOT_FOUND = 105
    FETCH_SESSION_TOPIC_ID_ERROR = 106
    FENCED_MEMBER_EPOCH = 110
    UNRELEASED_INSTANCE_ID = 111
    UNSUPPORTED_ASSIGNOR = 112
    STALE_MEMBER_EPOCH = 113
    MISMATCHED_ENDPOINT_TYPE = 114
    UNSUPPORTED_ENDPOINT_TYPE = 115
    TRANSACTION_ABORTABLE = 120
    INVALID_RECORD_STATE = 121
    INVALID_REGULAR_EXPRESSION = 128


@dataclass(eq=False)  # exceptions must stay hashable
class KafkaRefusal(Refusal):
    """A refusal that only the Kafka protocol has, with its error code."""

    code: Code
    reason: str

    def __str__(self) -> str:
        return self.reason


CODES: dict[type[Refusal], Code] = {
    errors.NotRunning: Code.NOT_LEADER_OR_FOLLOWER,
    errors.NotOwner: Code.NOT_LEADER_OR_FOLLOWER,
    errors.DiskFull: Code.KAFKA_STORAGE_ERROR,
    errors.DiskStalled: Code.REQUEST_TIMED_OUT,
    errors.MemoryFull: Code.KAFKA_STORAGE_ERROR,
    errors.WriteFailed: Code.KAFKA_STORAGE_ERROR,
    errors.DamagedSegment: Code.KAFKA_STORAGE_ERROR,
    errors.MessageTooLong: Code.MESSAGE_TOO_LARGE,
    errors.NameTooLong: Code.INVALID_TOPIC,
    errors.InvalidName: Code.INVALID_TOPIC,
    errors.PropertiesTooLong: Code.MESSAGE_TOO_LARGE,
    errors.InvalidSetting: Code.INVALID_CONFIG,
    errors.InvalidCount: Code.INVALID_PARTITIONS,
    errors.LimitReached: Code.POLICY_VIOLATION,
    errors.ReadOnly: Code.POLICY_VIOLATION,
    errors.UnknownTopic: Code.UNKNOWN_TOPIC_OR_PARTITION,
    errors.UnknownStream: Code.UNKNOWN_TOPIC_OR_PARTITION,
    errors.TopicExists: Code.TOPIC_ALREADY_EXISTS,
    errors.OtherHome: Code.INVALID_TOPIC,
    errors.OffsetOutOfRange: Code.OFFSET_OUT_OF_RANGE,
    errors.Busy: Code.REQUEST_TIMED_OUT,
    errors.AccessDenied: Code.TOPIC_AUTHORIZATION_FAILED,
    errors.LoginFailed: Code.SASL_AUTHENTICATION_FAILED,
    errors.Changed: Code.REQUEST_TIMED_OUT,
    errors.UnknownUser: Code.RESOURCE_NOT_FOUND,
    errors.LeaseGone: Code.INVALID_RECORD_STATE,
    errors.AlreadyLeased: Code.INVALID_RECORD_STATE,
    errors.UnknownFailure: Code.RESOURCE_NOT_FOUND,
    errors.InvalidRecords: Code.INVALID_RECORD,
    errors.CorruptRecords: Code.CORRUPT_MESSAGE,
    errors.MissingKey: Code.INVALID_RECORD,
    errors.UntimelyRecord: Code.INVALID_TIMESTAMP,
    errors.StaleEpoch: Code.FENCED_LEADER_EPOCH,
    errors.UnknownEpoch: Code.UNKNOWN_LEADER_EPOCH,
    errors.OutOfOrderSequence: Code.OUT_OF_ORDER_SEQUENCE_NUMBER,
    errors.StaleProducer: Code.INVALID_PRODUCER_EPOCH,
    errors.UnknownGroup: Code.GROUP_ID_NOT_FOUND,
    errors.GroupNotEmpty: Code.NON_EMPTY_GROUP,
    transaction_refusals.UnknownTransaction: Code.TRANSACTIONAL_ID_NOT_FOUND,
    transaction_refusals.ForeignProducer: Code.INVALID_PRODUCER_ID_MAPPING,
    transaction_refusals.ProducerFenced: Code.INVALID_PRODUCER_EPOCH,
    transaction_refusals.TransactionUnderWay: Code.CONCURRENT_TRANSACTIONS,
    transaction_refusals.WrongTransactionState: Code.INVALID_TXN_STATE,
    transaction_refusals.InvalidTransactionTimeout: Code.INVALID_TRANSACTION_TIMEOUT,
}


_DENIED = {
    "topic": Code.TOPIC_AUTHORIZATION_FAILED,
    "route": Code.TOPIC_AUTHORIZATION_FAILED,
    "group": Code.GROUP_AUTHORIZATION_FAILED,
    "transaction": Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    "broker": Code.CLUSTER_AUTHORIZATION_FAILED,
}
"""By the kind of resource that the caller was refused."""


def code_of(refusal: Refusal) -> Code:
    if isinstance(refusal, KafkaRefusal):
        return refusal.code
    if isinstance(refusal, errors.AccessDenied):
        return _DENIED[refusal.resource.partition(" ")[0]]
    return CODES.get(type(refusal), Code.UNKNOWN_SERVER_ERROR)


def code_of_batch(error: BadBatch) -> Code:
    """Returns CORRUPT_MESSAGE for a wrong checksum or missing bytes, and INVALID_RECORD for most other violations. A
    producer that gets MESSAGE_TOO_LARGE may split the batch."""
    if isinstance(error, BatchTooLarge):
        return Code.MESSAGE_TOO_LARGE
    if isinstance(error, BadPayload):
        return Code.UNKNOWN_SERVER_ERROR
    if isinstance(error, OldMagic):
        return Code.INVALID_RECORD
    if isinstance(error, (BadLength, UnsupportedMagic, BadChecksum)):
        return Code.CORRUPT_MESSAGE
    return Code.INVALID_RECORD


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
    group_refusals.GroupOfOtherProtocol: Code.INCONSISTENT_GROUP_PROTOCOL,
    group_refusals.InvalidPattern: Code.INVALID_REGULAR_EXPRESSION,
    group_refusals.OldWayOfSpeaking: Code.UNSUPPORTED_VERSION,
    errors.LimitReached: Code.GROUP_MAX_SIZE_REACHED,  # which stops a client; there is no other code for it
    # Clients retry these coordinator codes; the codes of `CODES` for the same refusals would stop the consumer.
    errors.NotRunning: Code.NOT_COORDINATOR,
    errors.NotOwner: Code.NOT_COORDINATOR,
    errors.DiskFull: Code.COORDINATOR_NOT_AVAILABLE,
    errors.MemoryFull: Code.COORDINATOR_NOT_AVAILABLE,
    errors.WriteFailed: Code.COORDINATOR_NOT_AVAILABLE,
}


class GroupTicket(Protocol):
    """Ticket of a change that a coordinator logs."""

    @property
    def number(self) -> int: ...

    @property
    def refusal(self) -> Refusal | None: ...


def group_code(refusal: Refusal) -> Code:
    return GROUP_CODES.get(type(refusal)) or code_of(refusal)


def require_group_id(group: str) -> None:
    if not group:
        raise KafkaRefusal(Code.INVALID_GROUP_ID, "the group id must not be empty")


def reply_after(ticket: GroupTicket | None, build: Callable[[Refusal | None], Parts]) -> Reply:
    """Returns a reply that calls `build` once the ticket's pass is durable, with its refusal if the write failed."""
    if ticket is None:
        return Reply.now(build(None))
    return Reply.when_durable(ticket.number, lambda: build(ticket.refusal))


def resolve_after(reply: DeferredReply, ticket: GroupTicket | None, build: Callable[[Refusal | None], Parts]) -> None:
    """Like `reply_after`, for a deferred reply that the connection already waits for."""
    if ticket is None:
        reply.resolve(build(None))
    else:
        reply.resolve_when_durable(ticket.number, lambda: build(ticket.refusal))


def transaction_code(refusal: Refusal, knows_fencing: bool) -> Code:
    """`knows_fencing`: the client knows PRODUCER_FENCED; older clients get INVALID_PRODUCER_EPOCH instead."""
    if knows_fencing and isinstance(refusal, ProducerFenced):
        return Code.PRODUCER_FENCED
    return group_code(refusal)


def require_transactional_id(name: str) -> None:
    if not name:
        raise KafkaRefusal(Code.INVALID_REQUEST, "the transactional id must not be empty")
