"""Kafka's error codes, and which of them a refusal is."""

from __future__ import annotations

from enum import IntEnum

from trimq import errors
from trimq.errors import Refusal
from trimq.formats.batch import BadBatch, BadChecksum, BadLength, OldMagic, UnsupportedMagic
from trimq.formats.records import BadPayload


class Code(IntEnum):
    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    MESSAGE_TOO_LARGE = 10
    COORDINATOR_NOT_AVAILABLE = 15
    INVALID_TOPIC = 17
    INVALID_REQUIRED_ACKS = 21
    TOPIC_AUTHORIZATION_FAILED = 29
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_CONFIG = 40
    INVALID_REQUEST = 42
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    INVALID_PRODUCER_EPOCH = 47
    KAFKA_STORAGE_ERROR = 56
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    UNSUPPORTED_COMPRESSION_TYPE = 76
    INVALID_RECORD = 87
    RESOURCE_NOT_FOUND = 91
    UNKNOWN_TOPIC_ID = 100
    INVALID_RECORD_STATE = 121


CODES: dict[type[Refusal], Code] = {
    errors.NotRunning: Code.NOT_LEADER_OR_FOLLOWER,
    errors.NotOwner: Code.NOT_LEADER_OR_FOLLOWER,
    errors.DiskFull: Code.KAFKA_STORAGE_ERROR,
    errors.WriteFailed: Code.KAFKA_STORAGE_ERROR,
    errors.DamagedSegment: Code.KAFKA_STORAGE_ERROR,
    errors.MessageTooLong: Code.MESSAGE_TOO_LARGE,
    errors.NameTooLong: Code.INVALID_TOPIC,
    errors.InvalidName: Code.INVALID_TOPIC,
    errors.PropertiesTooLong: Code.MESSAGE_TOO_LARGE,
    errors.InvalidSetting: Code.INVALID_CONFIG,
    errors.InvalidCount: Code.INVALID_PARTITIONS,
    errors.ReadOnly: Code.POLICY_VIOLATION,
    errors.UnknownTopic: Code.UNKNOWN_TOPIC_OR_PARTITION,
    errors.UnknownStream: Code.UNKNOWN_TOPIC_OR_PARTITION,
    errors.TopicExists: Code.TOPIC_ALREADY_EXISTS,
    errors.OtherHome: Code.INVALID_TOPIC,
    errors.OffsetOutOfRange: Code.OFFSET_OUT_OF_RANGE,
    errors.Busy: Code.REQUEST_TIMED_OUT,
    errors.AccessDenied: Code.TOPIC_AUTHORIZATION_FAILED,
    errors.Changed: Code.REQUEST_TIMED_OUT,
    errors.UnknownUser: Code.RESOURCE_NOT_FOUND,
    errors.LeaseGone: Code.INVALID_RECORD_STATE,
    errors.AlreadyLeased: Code.INVALID_RECORD_STATE,
    errors.UnknownFailure: Code.RESOURCE_NOT_FOUND,
    errors.InvalidRecords: Code.INVALID_RECORD,
    errors.CorruptRecords: Code.CORRUPT_MESSAGE,
    errors.OutOfOrderSequence: Code.OUT_OF_ORDER_SEQUENCE_NUMBER,
    errors.StaleProducer: Code.INVALID_PRODUCER_EPOCH,
}


def code_of(refusal: Refusal) -> Code:
    return CODES.get(type(refusal), Code.UNKNOWN_SERVER_ERROR)


def code_of_batch(error: BadBatch) -> Code:
    """Bytes that do not match their checksum or are too few are corrupt; others that break a rule are invalid."""
    if isinstance(error, BadPayload):
        return Code.UNKNOWN_SERVER_ERROR
    if isinstance(error, OldMagic):
        return Code.INVALID_RECORD
    if isinstance(error, (BadLength, UnsupportedMagic, BadChecksum)):
        return Code.CORRUPT_MESSAGE
    return Code.INVALID_RECORD
