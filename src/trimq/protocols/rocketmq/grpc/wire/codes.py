"""Status code of each refusal in RocketMQ's gRPC API."""

from __future__ import annotations

from dataclasses import dataclass

from trimq import errors
from trimq.errors import Refusal
from trimq.errors import groups as group_refusals
from trimq.protocols.rocketmq.grpc.wire.enums import Code
from trimq.protocols.rocketmq.wire import codes as remoting


@dataclass(eq=False)  # exceptions must stay hashable
class GrpcRefusal(Refusal):
    """Refusal with a status code of the gRPC API."""

    code: Code
    reason: str

    def __str__(self) -> str:
        return self.reason


class GrpcStatusError(Exception):
    """Ends the call with a gRPC status instead of a response."""

    def __init__(self, status: str, reason: str) -> None:
        super().__init__(reason)
        self.status = status


CODES: dict[type[Refusal], Code] = {
    errors.NotRunning: Code.INTERNAL_SERVER_ERROR,
    errors.NotOwner: Code.INTERNAL_SERVER_ERROR,
    errors.DiskFull: Code.INTERNAL_SERVER_ERROR,
    errors.DiskStalled: Code.TOO_MANY_REQUESTS,
    errors.MemoryFull: Code.TOO_MANY_REQUESTS,
    errors.WriteFailed: Code.INTERNAL_SERVER_ERROR,
    errors.DamagedSegment: Code.INTERNAL_SERVER_ERROR,
    errors.MessageTooLong: Code.MESSAGE_BODY_TOO_LARGE,
    errors.NameTooLong: Code.ILLEGAL_TOPIC,
    errors.InvalidName: Code.ILLEGAL_TOPIC,
    errors.PropertiesTooLong: Code.MESSAGE_PROPERTIES_TOO_LARGE,
    errors.InvalidSetting: Code.BAD_REQUEST,
    errors.InvalidCount: Code.BAD_REQUEST,
    errors.LimitReached: Code.FORBIDDEN,
    errors.ReadOnly: Code.FORBIDDEN,
    errors.UnknownTopic: Code.TOPIC_NOT_FOUND,
    errors.UnknownStream: Code.INTERNAL_SERVER_ERROR,
    errors.TopicExists: Code.BAD_REQUEST,
    errors.OtherHome: Code.FORBIDDEN,
    errors.OffsetOutOfRange: Code.ILLEGAL_OFFSET,
    errors.Busy: Code.TOO_MANY_REQUESTS,
    errors.AccessDenied: Code.FORBIDDEN,
    errors.LoginFailed: Code.UNAUTHORIZED,
    errors.Changed: Code.TOO_MANY_REQUESTS,
    errors.UnknownUser: Code.UNAUTHORIZED,
    errors.LeaseGone: Code.INVALID_RECEIPT_HANDLE,
    errors.AlreadyLeased: Code.TOO_MANY_REQUESTS,
    errors.UnknownFailure: Code.NOT_FOUND,
    errors.InvalidRecords: Code.MESSAGE_CORRUPTED,
    errors.CorruptRecords: Code.MESSAGE_CORRUPTED,
    errors.MissingKey: Code.MESSAGE_CORRUPTED,
    errors.UntimelyRecord: Code.ILLEGAL_DELIVERY_TIME,
    errors.StaleEpoch: Code.INTERNAL_SERVER_ERROR,
    errors.UnknownEpoch: Code.INTERNAL_SERVER_ERROR,
    errors.OutOfOrderSequence: Code.INTERNAL_SERVER_ERROR,
    errors.StaleProducer: Code.INTERNAL_SERVER_ERROR,
    errors.UnknownGroup: Code.CONSUMER_GROUP_NOT_FOUND,
    errors.GroupNotEmpty: Code.BAD_REQUEST,
    group_refusals.GroupOfOtherProtocol: Code.FORBIDDEN,
}

# Code shared with remoting raises refusals with remoting codes.
_REMOTING_CODES = {
    remoting.ResponseCode.NO_PERMISSION: Code.FORBIDDEN,
    remoting.ResponseCode.SYSTEM_BUSY: Code.TOO_MANY_REQUESTS,
    remoting.ResponseCode.POLLING_FULL: Code.TOO_MANY_REQUESTS,
    remoting.ResponseCode.TOPIC_NOT_EXIST: Code.TOPIC_NOT_FOUND,
    remoting.ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST: Code.CONSUMER_GROUP_NOT_FOUND,
    remoting.ResponseCode.MESSAGE_ILLEGAL: Code.BAD_REQUEST,
    remoting.ResponseCode.INVALID_PARAMETER: Code.BAD_REQUEST,
}


def code_of(refusal: Refusal) -> Code:
    if isinstance(refusal, GrpcRefusal):
        return refusal.code
    if isinstance(refusal, remoting.RemotingRefusal):
        return _REMOTING_CODES.get(refusal.code, Code.INTERNAL_SERVER_ERROR)
    return CODES.get(type(refusal), Code.INTERNAL_SERVER_ERROR)
