"""Request and response codes of RocketMQ remoting, and the response code of each refusal."""

from __future__ import annotations

from dataclasses import dataclass, field

from trimq import errors
from trimq.errors import Refusal
from trimq.errors import groups as group_refusals
from trimq.wire.remoting_codes import RequestCode as RequestCode
from trimq.wire.remoting_codes import ResponseCode as ResponseCode


@dataclass(eq=False)  # exceptions must stay hashable
class RemotingRefusal(Refusal):
    """Refusal with a response code of its own, and the extFields of its response."""

    code: ResponseCode
    reason: str
    fields: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.reason


CODES: dict[type[Refusal], ResponseCode] = {
    errors.NotRunning: ResponseCode.SERVICE_NOT_AVAILABLE,
    errors.NotOwner: ResponseCode.SERVICE_NOT_AVAILABLE,
    errors.DiskFull: ResponseCode.SERVICE_NOT_AVAILABLE,
    errors.DiskStalled: ResponseCode.SYSTEM_BUSY,
    errors.MemoryFull: ResponseCode.SERVICE_NOT_AVAILABLE,
    errors.WriteFailed: ResponseCode.SYSTEM_ERROR,
    errors.DamagedSegment: ResponseCode.SYSTEM_ERROR,
    errors.MessageTooLong: ResponseCode.MESSAGE_ILLEGAL,
    errors.NameTooLong: ResponseCode.INVALID_PARAMETER,
    errors.InvalidName: ResponseCode.INVALID_PARAMETER,
    errors.PropertiesTooLong: ResponseCode.MESSAGE_ILLEGAL,
    errors.InvalidSetting: ResponseCode.INVALID_PARAMETER,
    errors.InvalidCount: ResponseCode.INVALID_PARAMETER,
    errors.LimitReached: ResponseCode.SYSTEM_ERROR,
    errors.ReadOnly: ResponseCode.NO_PERMISSION,
    errors.UnknownTopic: ResponseCode.TOPIC_NOT_EXIST,
    errors.UnknownStream: ResponseCode.INVALID_PARAMETER,
    errors.TopicExists: ResponseCode.TOPIC_EXIST_ALREADY,
    errors.OtherHome: ResponseCode.NO_PERMISSION,
    errors.OffsetOutOfRange: ResponseCode.PULL_OFFSET_MOVED,
    errors.Busy: ResponseCode.SYSTEM_BUSY,
    errors.AccessDenied: ResponseCode.NO_PERMISSION,
    errors.LoginFailed: ResponseCode.NO_PERMISSION,
    errors.Changed: ResponseCode.SYSTEM_BUSY,
    errors.UnknownUser: ResponseCode.NO_PERMISSION,
    errors.LeaseGone: ResponseCode.NO_MESSAGE,
    errors.AlreadyLeased: ResponseCode.SYSTEM_BUSY,
    errors.UnknownFailure: ResponseCode.QUERY_NOT_FOUND,
    errors.InvalidRecords: ResponseCode.MESSAGE_ILLEGAL,
    errors.CorruptRecords: ResponseCode.MESSAGE_ILLEGAL,
    errors.MissingKey: ResponseCode.MESSAGE_ILLEGAL,
    errors.UntimelyRecord: ResponseCode.MESSAGE_ILLEGAL,
    errors.StaleEpoch: ResponseCode.SYSTEM_ERROR,
    errors.UnknownEpoch: ResponseCode.SYSTEM_ERROR,
    errors.OutOfOrderSequence: ResponseCode.SYSTEM_ERROR,
    errors.StaleProducer: ResponseCode.SYSTEM_ERROR,
    errors.UnknownGroup: ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
    errors.GroupNotEmpty: ResponseCode.ILLEGAL_OPERATION,
    group_refusals.GroupOfOtherProtocol: ResponseCode.NO_PERMISSION,
}


PAGE_CACHE_BUSY = "[PC_SYNCHRONIZED]broker busy, start flow control for a while"
"""Apache RocketMQ's text while an append takes longer than osPageCacheBusyTimeOutMills."""


def remark_of(refusal: Refusal) -> str:
    return PAGE_CACHE_BUSY if isinstance(refusal, errors.DiskStalled) else str(refusal)


def code_of(refusal: Refusal) -> ResponseCode:
    if isinstance(refusal, RemotingRefusal):
        return refusal.code
    return CODES.get(type(refusal), ResponseCode.SYSTEM_ERROR)
