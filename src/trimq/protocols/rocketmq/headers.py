"""The headers of the commands that come most often, as structs that are read without a step between. Field names are
those of the wire."""

from __future__ import annotations

import msgspec


class Send(msgspec.Struct, gc=False):
    """Of a message that is sent, under whichever of its two sets of names."""

    topic: str
    queueId: int
    defaultTopic: str = ""
    defaultTopicQueueNums: int = 0
    sysFlag: int = 0
    bornTimestamp: int = 0
    flag: int = 0
    properties: str = ""
    reconsumeTimes: int = 0
    producerGroup: str = ""
    batch: bool = False
    maxReconsumeTimes: int | None = None


class SendV2(msgspec.Struct, gc=False):
    b: str = msgspec.field()
    e: int = msgspec.field()
    c: str = ""
    d: int = 0
    f: int = 0
    g: int = 0
    h: int = 0
    i: str = ""
    j: int = 0
    a: str = ""
    m: bool = False
    l: int | None = None  # noqa: E741

    def spelled_out(self) -> Send:
        return Send(self.b, self.e, self.c, self.d, self.f, self.g, self.h, self.i, self.j, self.a, self.m, self.l)


class Pull(msgspec.Struct, gc=False):
    consumerGroup: str
    topic: str
    queueId: int
    queueOffset: int
    maxMsgNums: int
    sysFlag: int
    commitOffset: int = 0
    suspendTimeoutMillis: int = 0
    subscription: str | None = None
    subVersion: int = 0
    expressionType: str | None = None
    maxMsgBytes: int | None = None


class OfQueue(msgspec.Struct, gc=False):
    """Of a command that asks about one queue."""

    topic: str
    queueId: int


class SearchOffset(msgspec.Struct, gc=False):
    topic: str
    queueId: int
    timestamp: int
    boundaryType: str = "LOWER"


class QueryOffset(msgspec.Struct, gc=False):
    consumerGroup: str
    topic: str
    queueId: int
    setZeroIfNotFound: bool = True


class UpdateOffset(msgspec.Struct, gc=False):
    consumerGroup: str
    topic: str
    queueId: int
    commitOffset: int
