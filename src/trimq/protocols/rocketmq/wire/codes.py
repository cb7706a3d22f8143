"""Request and response codes of RocketMQ remoting, and the response code of each refusal."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

from trimq import errors
from trimq.errors import Refusal


class RequestCode(IntEnum):
    """Command in a request."""

    SEND_MESSAGE = 10
    PULL_MESSAGE = 11
    QUERY_MESSAGE = 12
    QUERY_CONSUMER_OFFSET = 14
    UPDATE_CONSUMER_OFFSET = 15
    UPDATE_AND_CREATE_TOPIC = 17
    UPDATE_AND_CREATE_TOPIC_LIST = 18
    GET_ALL_TOPIC_CONFIG = 21
    UPDATE_BROKER_CONFIG = 25
    GET_BROKER_CONFIG = 26
    GET_BROKER_RUNTIME_INFO = 28
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
    CHECK_CLIENT_CONFIG = 46
    PUT_KV_CONFIG = 100
    GET_KV_CONFIG = 101
    DELETE_KV_CONFIG = 102
    REGISTER_BROKER = 103
    UNREGISTER_BROKER = 104
    GET_ROUTEINFO_BY_TOPIC = 105
    GET_BROKER_CLUSTER_INFO = 106
    UPDATE_AND_CREATE_SUBSCRIPTIONGROUP = 200
    GET_ALL_SUBSCRIPTIONGROUP_CONFIG = 201
    GET_TOPIC_STATS_INFO = 202
    GET_CONSUMER_CONNECTION_LIST = 203
    GET_PRODUCER_CONNECTION_LIST = 204
    WIPE_WRITE_PERM_OF_BROKER = 205
    GET_ALL_TOPIC_LIST = 206
    DELETE_SUBSCRIPTIONGROUP = 207
    GET_CONSUME_STATS = 208
    DELETE_TOPIC_IN_BROKER = 215
    DELETE_TOPIC_IN_NAMESRV = 216
    REGISTER_TOPIC_IN_NAMESRV = 217
    GET_KVLIST_BY_NAMESPACE = 219
    GET_CONSUMER_STATUS_FROM_CLIENT = 221
    INVOKE_BROKER_TO_RESET_OFFSET = 222
    INVOKE_BROKER_TO_GET_CONSUMER_STATUS = 223
    GET_TOPICS_BY_CLUSTER = 224
    UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST = 225
    QUERY_TOPIC_CONSUME_BY_WHO = 300
    QUERY_CONSUME_TIME_SPAN = 303
    GET_SYSTEM_TOPIC_LIST_FROM_NS = 304
    GET_SYSTEM_TOPIC_LIST_FROM_BROKER = 305
    CLEAN_EXPIRED_CONSUMEQUEUE = 306
    GET_CONSUMER_RUNNING_INFO = 307
    QUERY_CORRECTION_OFFSET = 308
    CONSUME_MESSAGE_DIRECTLY = 309
    SEND_MESSAGE_V2 = 310
    GET_UNIT_TOPIC_LIST = 311
    GET_HAS_UNIT_SUB_TOPIC_LIST = 312
    GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST = 313
    CLONE_GROUP_OFFSET = 314
    VIEW_BROKER_STATS_DATA = 315
    CLEAN_UNUSED_TOPIC = 316
    GET_BROKER_CONSUME_STATS = 317
    UPDATE_NAMESRV_CONFIG = 318
    GET_NAMESRV_CONFIG = 319
    SEND_BATCH_MESSAGE = 320
    QUERY_CONSUME_QUEUE = 321
    QUERY_DATA_VERSION = 322
    RESUME_CHECK_HALF_MESSAGE = 323
    SEND_REPLY_MESSAGE = 324
    SEND_REPLY_MESSAGE_V2 = 325
    PUSH_REPLY_MESSAGE_TO_CLIENT = 326
    ADD_WRITE_PERM_OF_BROKER = 327
    GET_ALL_PRODUCER_INFO = 328
    DELETE_EXPIRED_COMMITLOG = 329
    QUERY_TOPICS_BY_CONSUMER = 343
    QUERY_SUBSCRIPTION_BY_CONSUMER = 345
    GET_TOPIC_CONFIG = 351
    GET_SUBSCRIPTIONGROUP_CONFIG = 352
    UPDATE_AND_GET_GROUP_FORBIDDEN = 353
    LITE_PULL_MESSAGE = 361
    RECALL_MESSAGE = 370
    QUERY_ASSIGNMENT = 400
    SET_MESSAGE_REQUEST_MODE = 401
    GET_ALL_MESSAGE_REQUEST_MODE = 402
    GET_BROKER_MEMBER_GROUP = 901
    BROKER_HEARTBEAT = 904
    AUTH_CREATE_USER = 3001
    AUTH_UPDATE_USER = 3002
    AUTH_DELETE_USER = 3003
    AUTH_GET_USER = 3004
    AUTH_LIST_USER = 3005
    AUTH_CREATE_ACL = 3006
    AUTH_UPDATE_ACL = 3007
    AUTH_DELETE_ACL = 3008
    AUTH_GET_ACL = 3009
    AUTH_LIST_ACL = 3010
    GET_BROKER_HA_STATUS = 907
    POP_MESSAGE = 200050
    ACK_MESSAGE = 200051
    PEEK_MESSAGE = 200052
    CHANGE_MESSAGE_INVISIBLETIME = 200053
    NOTIFICATION = 200054
    POLLING_INFO = 200055
    BATCH_ACK_MESSAGE = 200151


class ResponseCode(IntEnum):
    """Result in a response."""

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
    FILTER_DATA_NOT_EXIST = 27
    INVALID_PARAMETER = 29
    CONSUMER_NOT_ONLINE = 206
    CONSUME_MSG_TIMEOUT = 207
    NO_MESSAGE = 208
    POLLING_FULL = 209
    POLLING_TIMEOUT = 210
    ILLEGAL_OPERATION = 604


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
}


PAGE_CACHE_BUSY = "[PC_SYNCHRONIZED]broker busy, start flow control for a while"
"""Apache RocketMQ's text while an append takes longer than osPageCacheBusyTimeOutMills."""


def remark_of(refusal: Refusal) -> str:
    return PAGE_CACHE_BUSY if isinstance(refusal, errors.DiskStalled) else str(refusal)


def code_of(refusal: Refusal) -> ResponseCode:
    if isinstance(refusal, RemotingRefusal):
        return refusal.code
    return CODES.get(type(refusal), ResponseCode.SYSTEM_ERROR)
