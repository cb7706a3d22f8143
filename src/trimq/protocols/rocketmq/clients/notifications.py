"""Requests that the broker sends to clients on its own initiative. The contents are the same for every client; each
front-end (remoting, gRPC) encodes them."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from trimq.model import Buffer
from trimq.protocols.rocketmq.state.system_topics import HALF_TOPIC
from trimq.protocols.rocketmq.wire.codes import RequestCode
from trimq.wire.remoting import ONE_WAY, encode_command


class TransactionCheck(NamedTuple):
    """Transaction check-back of one half message. `unit` is the half message encoded as the message it will become;
    `position` and `queue_offset` are those of the half message itself."""

    unit: bytes
    unique: str
    position: int
    queue_offset: int
    offset_id: str
    broker_name: str


class Dialect(Protocol):
    def members_changed(self, group: str, opaque: int) -> list[Buffer]:
        """Notifies that the members of the group changed. Empty: such clients need no notification."""

    def check_back(self, question: TransactionCheck, opaque: int) -> list[Buffer]: ...


class RemotingDialect:
    def members_changed(self, group: str, opaque: int) -> list[Buffer]:
        return [encode_command(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, opaque, ONE_WAY, {"consumerGroup": group})]

    def check_back(self, question: TransactionCheck, opaque: int) -> list[Buffer]:
        fields = {
            "bname": question.broker_name,
            "commitLogOffset": str(question.position),
            "msgId": question.unique,
            "offsetMsgId": question.offset_id,
            "topic": HALF_TOPIC,
            "tranStateTableOffset": str(question.queue_offset),
            "transactionId": question.unique,
        }
        size = len(question.unit)
        return [
            encode_command(RequestCode.CHECK_TRANSACTION_STATE, opaque, ONE_WAY, fields, size=size),
            question.unit,
        ]


REMOTING = RemotingDialect()
