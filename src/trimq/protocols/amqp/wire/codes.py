"""AMQP reply codes, which of them close only a channel, and the code of each refusal."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from trimq import errors
from trimq.errors import ProtocolError, Refusal
from trimq.errors import groups as group_refusals
from trimq.errors import queues as queue_refusals


class Code(IntEnum):
    REPLY_SUCCESS = 200
    CONTENT_TOO_LARGE = 311
    NO_ROUTE = 312
    NO_CONSUMERS = 313
    CONNECTION_FORCED = 320
    INVALID_PATH = 402
    ACCESS_REFUSED = 403
    NOT_FOUND = 404
    RESOURCE_LOCKED = 405
    PRECONDITION_FAILED = 406
    FRAME_ERROR = 501
    SYNTAX_ERROR = 502
    COMMAND_INVALID = 503
    CHANNEL_ERROR = 504
    UNEXPECTED_FRAME = 505
    RESOURCE_ERROR = 506
    NOT_ALLOWED = 530
    NOT_IMPLEMENTED = 540
    INTERNAL_ERROR = 541


# Every other code closes the connection.
CLOSES_CHANNEL = frozenset(
    {
        Code.CONTENT_TOO_LARGE,
        Code.ACCESS_REFUSED,
        Code.NOT_FOUND,
        Code.RESOURCE_LOCKED,
        Code.PRECONDITION_FAILED,
    }
)

_MAX_TEXT_BYTES = 255


@dataclass(eq=False)  # exceptions must stay hashable
class AmqpRefusal(Refusal):
    """Refusal that exists only in AMQP, with its reply code."""

    code: Code
    reason: str

    def __str__(self) -> str:
        return self.reason


class ConnectionFault(ProtocolError):
    """Error that closes the connection: a protocol violation or a refusal with a connection-level code. The peer gets
    connection.close with the reason, or without it if not `is_explained`: where RabbitMQ has no text."""

    def __init__(
        self, code: Code, reason: str, class_id: int = 0, method_id: int = 0, is_explained: bool = True
    ) -> None:
        super().__init__(f"{code.name} - {reason}")
        self.code = code
        self.text = reply_text(code, reason) if is_explained else code.name
        self.class_id = class_id
        self.method_id = method_id


class SilentClose(ProtocolError):
    """Error at which RabbitMQ closes the socket without an answer."""


class WrongProtocol(ProtocolError):
    """The connection does not start with a supported protocol header. The peer gets the supported header."""


CODES: dict[type[Refusal], Code] = {
    errors.NotRunning: Code.CONNECTION_FORCED,
    errors.NotOwner: Code.NOT_FOUND,
    errors.DiskFull: Code.PRECONDITION_FAILED,
    errors.DiskStalled: Code.PRECONDITION_FAILED,
    errors.MemoryFull: Code.PRECONDITION_FAILED,
    errors.WriteFailed: Code.INTERNAL_ERROR,
    errors.DamagedSegment: Code.INTERNAL_ERROR,
    errors.MessageTooLong: Code.PRECONDITION_FAILED,
    errors.NameTooLong: Code.PRECONDITION_FAILED,
    errors.InvalidName: Code.PRECONDITION_FAILED,
    errors.PropertiesTooLong: Code.PRECONDITION_FAILED,
    errors.InvalidSetting: Code.PRECONDITION_FAILED,
    errors.InvalidCount: Code.PRECONDITION_FAILED,
    errors.LimitReached: Code.PRECONDITION_FAILED,  # as RabbitMQ for the queue limit of a virtual host
    errors.ReadOnly: Code.ACCESS_REFUSED,
    errors.UnknownTopic: Code.NOT_FOUND,
    errors.UnknownStream: Code.NOT_FOUND,
    errors.TopicExists: Code.PRECONDITION_FAILED,
    errors.OtherHome: Code.ACCESS_REFUSED,
    errors.OffsetOutOfRange: Code.PRECONDITION_FAILED,
    errors.Busy: Code.RESOURCE_ERROR,
    errors.AccessDenied: Code.ACCESS_REFUSED,
    errors.LoginFailed: Code.ACCESS_REFUSED,
    errors.Changed: Code.PRECONDITION_FAILED,
    errors.UnknownUser: Code.ACCESS_REFUSED,
    errors.LeaseGone: Code.PRECONDITION_FAILED,
    errors.AlreadyLeased: Code.RESOURCE_LOCKED,
    errors.UnknownFailure: Code.NOT_FOUND,
    errors.InvalidRecords: Code.PRECONDITION_FAILED,
    errors.CorruptRecords: Code.PRECONDITION_FAILED,
    errors.MissingKey: Code.PRECONDITION_FAILED,
    errors.UntimelyRecord: Code.PRECONDITION_FAILED,
    errors.StaleEpoch: Code.PRECONDITION_FAILED,
    errors.UnknownEpoch: Code.PRECONDITION_FAILED,
    errors.OutOfOrderSequence: Code.PRECONDITION_FAILED,
    errors.StaleProducer: Code.ACCESS_REFUSED,
    errors.UnknownGroup: Code.NOT_FOUND,
    errors.GroupNotEmpty: Code.PRECONDITION_FAILED,
    group_refusals.GroupOfOtherProtocol: Code.RESOURCE_LOCKED,
    queue_refusals.TopicAccessDenied: Code.ACCESS_REFUSED,
    queue_refusals.TooManyQueues: Code.PRECONDITION_FAILED,
    queue_refusals.TooManyConnections: Code.NOT_ALLOWED,
    queue_refusals.TooManyChannels: Code.NOT_ALLOWED,
    queue_refusals.UnknownExchange: Code.NOT_FOUND,
    queue_refusals.UnknownQueue: Code.NOT_FOUND,
    queue_refusals.UnknownNamespace: Code.NOT_ALLOWED,
    queue_refusals.ReservedName: Code.ACCESS_REFUSED,
    queue_refusals.DefaultExchange: Code.ACCESS_REFUSED,
    queue_refusals.SystemExchange: Code.ACCESS_REFUSED,
    queue_refusals.InternalExchange: Code.ACCESS_REFUSED,
    queue_refusals.ExclusiveUse: Code.ACCESS_REFUSED,
    queue_refusals.Locked: Code.RESOURCE_LOCKED,
    queue_refusals.SingleActiveGet: Code.RESOURCE_LOCKED,
    queue_refusals.ExchangeInUse: Code.PRECONDITION_FAILED,
    queue_refusals.QueueInUse: Code.PRECONDITION_FAILED,
    queue_refusals.QueueNotEmpty: Code.PRECONDITION_FAILED,
    queue_refusals.UnknownExchangeKind: Code.PRECONDITION_FAILED,
    queue_refusals.Inequivalent: Code.PRECONDITION_FAILED,
    queue_refusals.InvalidArgument: Code.PRECONDITION_FAILED,
    queue_refusals.InvalidProperty: Code.PRECONDITION_FAILED,
    queue_refusals.ArgumentNotForKind: Code.PRECONDITION_FAILED,
    queue_refusals.ServerNamed: Code.PRECONDITION_FAILED,
    queue_refusals.InvalidMatch: Code.PRECONDITION_FAILED,
    queue_refusals.InvalidHash: Code.PRECONDITION_FAILED,
    queue_refusals.InvalidWeight: Code.PRECONDITION_FAILED,
    queue_refusals.InvalidHeader: Code.PRECONDITION_FAILED,
    queue_refusals.InvalidExpiration: Code.PRECONDITION_FAILED,
    queue_refusals.PrefetchNeeded: Code.PRECONDITION_FAILED,
    queue_refusals.OffsetNeeded: Code.PRECONDITION_FAILED,
    queue_refusals.AcknowledgementNeeded: Code.NOT_IMPLEMENTED,
    queue_refusals.NotForStreams: Code.NOT_IMPLEMENTED,
    queue_refusals.ConditionalDeletion: Code.NOT_IMPLEMENTED,
}


def code_of(refusal: Refusal) -> Code:
    if isinstance(refusal, AmqpRefusal):
        return refusal.code
    return CODES.get(type(refusal), Code.INTERNAL_ERROR)


def reply_text(code: Code, reason: str) -> str:
    """Formats the text as RabbitMQ does: a long one is cut, with an ellipsis at its end. It is at most as long as a
    short string."""
    text = f"{code.name} - {reason}"
    if len(text) > _MAX_TEXT_BYTES:
        text = text[: _MAX_TEXT_BYTES - 3] + "..."
    return text.encode("utf-8", "backslashreplace")[:_MAX_TEXT_BYTES].decode("utf-8", "ignore")
