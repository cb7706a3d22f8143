"""Headers of the most frequent commands, as structs that are decoded straight from JSON. Field names are those of the
wire. Integers have Java's ranges: a larger value would be stored where no Java program could read it."""

from __future__ import annotations

from typing import Annotated

import msgspec

Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


class SendHeader(msgspec.Struct, gc=False, kw_only=True):
    """Header of SEND_MESSAGE (10). Those without a default are the ones that Apache RocketMQ requires."""

    producerGroup: str
    topic: str
    defaultTopic: str
    defaultTopicQueueNums: Int32
    queueId: Int32
    sysFlag: Int32
    bornTimestamp: Int64
    flag: Int32
    properties: str = ""
    reconsumeTimes: Int32 = 0
    batch: bool = False
    maxReconsumeTimes: Int32 | None = None


class SendV2Header(SendHeader, gc=False, kw_only=True):
    """Header of SEND_MESSAGE_V2 (310): the same fields under one-letter names. Its producer group may be missing."""

    producerGroup: str = msgspec.field(default="", name="a")
    topic: str = msgspec.field(name="b")
    defaultTopic: str = msgspec.field(name="c")
    defaultTopicQueueNums: Int32 = msgspec.field(name="d")
    queueId: Int32 = msgspec.field(name="e")
    sysFlag: Int32 = msgspec.field(name="f")
    bornTimestamp: Int64 = msgspec.field(name="g")
    flag: Int32 = msgspec.field(name="h")
    properties: str = msgspec.field(default="", name="i")
    reconsumeTimes: Int32 = msgspec.field(default=0, name="j")
    batch: bool = msgspec.field(default=False, name="m")
    maxReconsumeTimes: Int32 | None = msgspec.field(default=None, name="l")


class SendCommand(msgspec.Struct, gc=False):
    """Whole header of a SEND_MESSAGE_V2 request, for requests that are read as a batch."""

    code: int
    extFields: SendV2Header
    opaque: int = 0
    flag: int = 0


class SignedSendCommand(msgspec.Struct, gc=False):
    """Same as `SendCommand`, with fields that are not decoded yet, since all of them are signed."""

    code: int
    extFields: msgspec.Raw
    opaque: int = 0
    flag: int = 0


class PullHeader(msgspec.Struct, gc=False):
    consumerGroup: str
    topic: str
    queueId: Int32
    queueOffset: Int64
    maxMsgNums: Int32
    sysFlag: Int32
    commitOffset: Int64 = 0
    suspendTimeoutMillis: Int64 = 0
    subscription: str | None = None
    subVersion: Int64 = 0
    expressionType: str | None = None
    maxMsgBytes: Int32 | None = None


class QueueHeader(msgspec.Struct, gc=False):
    """Header of a query about one queue."""

    topic: str
    queueId: Int32


class SearchOffsetHeader(msgspec.Struct, gc=False):
    topic: str
    queueId: Int32
    timestamp: Int64
    boundaryType: str = "LOWER"


class QueryOffsetHeader(msgspec.Struct, gc=False):
    consumerGroup: str
    topic: str
    queueId: Int32
    setZeroIfNotFound: bool = True


class UpdateOffsetHeader(msgspec.Struct, gc=False):
    consumerGroup: str
    topic: str
    queueId: Int32
    commitOffset: Int64
