"""RocketMQ's request and response codes, and which of the latter a refusal is."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

from trimq import errors
from trimq.errors import Refusal


class Request(IntEnum):
    """What a command asks for."""

    SEND_MESSAGE = 10
    PULL_MESSAGE = 11
    QUERY_MESSAGE = 12
    QUERY_CONSUMER_OFFSET = 14
    UPDATE_CONSUMER_OFFSET = 15
    UPDATE_AND_CREATE_TOPIC = 17
    GET_ALL_TOPIC_CONFIG = 21
    SEARCH_OFFSET_BY_TIMESTAMP = 29
    GET_MAX_OFFSET = 30
    GET_MIN_OFFSET = 31
    GET_EARLIEST_MSG_STORETIME = 32
    VIEW_MESSAGE_BY_ID = 33
    HEART_BEAT = 34
    UNREGISTER_CLIENT = 35
    CONSUMER_SEND_MSG_BACK = 36
    END_TRANSACTION = 37
    GET_CONSUMER_LIST_BY_GROUP = 38
    CHECK_TRANSACTION_STATE = 39
    NOTIFY_CONSUMER_IDS_CHANGED = 40
    LOCK_BATCH_MQ = 41
    UNLOCK_BATCH_MQ = 42
    GET_ALL_CONSUMER_OFFSET = 43
    PUT_KV_CONFIG = 100
    GET_KV_CONFIG = 101
    DELETE_KV_CONFIG = 102
    REGISTER_BROKER = 103
    UNREGISTER_BROKER = 104
    GET_ROUTEINFO_BY_TOPIC = 105
    GET_BROKER_CLUSTER_INFO = 106
    UPDATE_AND_CREATE_SUBSCRIPTIONGROUP = 200
    GET_ALL_SUBSCRIPTIONGROUP_CONFIG = 201
    GET_CONSUMER_CONNECTION_LIST = 203
    GET_PRODUCER_CONNECTION_LIST = 204
    WIPE_WRITE_PERM_OF_BROKER = 205
    GET_ALL_TOPIC_LIST = 206
    DELETE_SUBSCRIPTIONGROUP = 207
    DELETE_TOPIC_IN_BROKER = 215
    DELETE_TOPIC_IN_NAMESRV = 216
    REGISTER_TOPIC_IN_NAMESRV = 217
    GET_KVLIST_BY_NAMESPACE = 219
    GET_TOPICS_BY_CLUSTER = 224
    UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST = 225
    GET_SYSTEM_TOPIC_LIST_FROM_NS = 304
    SEND_MESSAGE_V2 = 310
    SEND_BATCH_MESSAGE = 320
    ADD_WRITE_PERM_OF_BROKER = 327
    GET_ALL_PRODUCER_INFO = 328
    GET_TOPIC_CONFIG = 351
    GET_SUBSCRIPTIONGROUP_CONFIG = 352
    LITE_PULL_MESSAGE = 361
    RECALL_MESSAGE = 370


class Code(IntEnum):
    """What a response says."""

    SUCCESS = 0
    SYSTEM_ERROR = 1
    SYSTEM_BUSY = 2
    REQUEST_CODE_NOT_SUPPORTED = 3
    FLUSH_DISK_TIMEOUT = 10
    MESSAGE_ILLEGAL = 13
    SERVICE_NOT_AVAILABLE = 14
    NO_PERMISSION = 16
    TOPIC_NOT_EXIST = 17
    TOPIC_EXIST_ALREADY = 18
    PULL_NOT_FOUND = 19
    PULL_RETRY_IMMEDIATELY = 20
    PULL_OFFSET_MOVED = 21
    QUERY_NOT_FOUND = 22
    SUBSCRIPTION_PARSE_FAILED = 23
    SUBSCRIPTION_NOT_EXIST = 24
    SUBSCRIPTION_NOT_LATEST = 25
    SUBSCRIPTION_GROUP_NOT_EXIST = 26
    INVALID_PARAMETER = 29
    CONSUMER_NOT_ONLINE = 206
    NO_MESSAGE = 208
    ILLEGAL_OPERATION = 604


@dataclass(eq=False)  # exceptions must stay hashable
class Failure(Refusal):
    """A no that only RocketMQ knows, with its code and the fields that its answer carries."""

    code: Code
    reason: str
    fields: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.reason


CODES: dict[type[Refusal], Code] = {
    errors.NotRunning: Code.SERVICE_NOT_AVAILABLE,
    errors.NotOwner: Code.SERVICE_NOT_AVAILABLE,
    errors.DiskFull: Code.SERVICE_NOT_AVAILABLE,
    errors.WriteFailed: Code.SYSTEM_ERROR,
    errors.DamagedSegment: Code.SYSTEM_ERROR,
    errors.MessageTooLong: Code.MESSAGE_ILLEGAL,
    errors.NameTooLong: Code.INVALID_PARAMETER,
    errors.InvalidName: Code.INVALID_PARAMETER,
    errors.PropertiesTooLong: Code.MESSAGE_ILLEGAL,
    errors.InvalidSetting: Code.INVALID_PARAMETER,
    errors.InvalidCount: Code.INVALID_PARAMETER,
    errors.ReadOnly: Code.NO_PERMISSION,
    errors.UnknownTopic: Code.TOPIC_NOT_EXIST,
    errors.UnknownStream: Code.INVALID_PARAMETER,
    errors.TopicExists: Code.TOPIC_EXIST_ALREADY,
    errors.OtherHome: Code.NO_PERMISSION,
    errors.OffsetOutOfRange: Code.PULL_OFFSET_MOVED,
    errors.Busy: Code.SYSTEM_BUSY,
    errors.AccessDenied: Code.NO_PERMISSION,
    errors.Changed: Code.SYSTEM_BUSY,
    errors.UnknownUser: Code.NO_PERMISSION,
    errors.LeaseGone: Code.NO_MESSAGE,
    errors.AlreadyLeased: Code.SYSTEM_BUSY,
    errors.UnknownFailure: Code.QUERY_NOT_FOUND,
    errors.InvalidRecords: Code.MESSAGE_ILLEGAL,
    errors.CorruptRecords: Code.MESSAGE_ILLEGAL,
    errors.MissingKey: Code.MESSAGE_ILLEGAL,
    errors.UntimelyRecord: Code.MESSAGE_ILLEGAL,
    errors.StaleEpoch: Code.SYSTEM_ERROR,
    errors.UnknownEpoch: Code.SYSTEM_ERROR,
    errors.OutOfOrderSequence: Code.SYSTEM_ERROR,
    errors.StaleProducer: Code.SYSTEM_ERROR,
    errors.UnknownGroup: Code.SUBSCRIPTION_GROUP_NOT_EXIST,
    errors.GroupNotEmpty: Code.ILLEGAL_OPERATION,
}


def code_of(refusal: Refusal) -> Code:
    if isinstance(refusal, Failure):
        return refusal.code
    return CODES.get(type(refusal), Code.SYSTEM_ERROR)
