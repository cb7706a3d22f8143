"""HTTP status code of each refusal."""

from __future__ import annotations

from trimq import errors
from trimq.errors import Refusal
from trimq.errors import queues as queue_refusals

CODES: dict[type[Refusal], int] = {
    errors.NotRunning: 503,
    errors.NotOwner: 421,
    errors.DiskFull: 507,
    errors.DiskStalled: 503,
    errors.MemoryFull: 503,
    errors.WriteFailed: 507,
    errors.DamagedSegment: 500,
    errors.MessageTooLong: 413,
    errors.NameTooLong: 400,
    errors.InvalidName: 400,
    errors.PropertiesTooLong: 413,
    errors.InvalidSetting: 400,
    errors.InvalidCount: 400,
    errors.LimitReached: 409,
    errors.ReadOnly: 409,
    errors.UnknownTopic: 404,
    errors.UnknownStream: 404,
    errors.TopicExists: 409,
    errors.OtherHome: 409,
    errors.OffsetOutOfRange: 416,
    errors.Busy: 503,
    errors.AccessDenied: 403,
    errors.LoginFailed: 401,
    errors.Changed: 409,
    errors.UnknownUser: 404,
    errors.LeaseGone: 410,
    errors.AlreadyLeased: 409,
    errors.UnknownFailure: 404,
    errors.InvalidRecords: 400,
    errors.CorruptRecords: 400,
    errors.MissingKey: 400,
    errors.UntimelyRecord: 400,
    errors.StaleEpoch: 409,
    errors.UnknownEpoch: 409,
    errors.OutOfOrderSequence: 409,
    errors.StaleProducer: 409,
    errors.UnknownGroup: 404,
    errors.GroupNotEmpty: 409,
    queue_refusals.UnknownQueue: 404,
    queue_refusals.UnknownExchange: 404,
    queue_refusals.UnknownNamespace: 404,
    queue_refusals.TooManyQueues: 409,
    queue_refusals.Locked: 409,
    queue_refusals.NotForStreams: 409,
    queue_refusals.Inequivalent: 409,
    queue_refusals.InvalidArgument: 400,
}


def status_of(refusal: Refusal) -> int:
    return CODES.get(type(refusal), 500)
