"""END_TRANSACTION (37), RESUME_CHECK_HALF_MESSAGE (323).

37 commits or rolls back a half message. If the producer does not know the outcome yet, there is no response, as in
Apache RocketMQ. 323 restores, once, a half message that was moved to TRANS_CHECK_MAX_TIME_TOPIC, and its check-back
begins again."""

from __future__ import annotations

import msgspec

from trimq.errors import OffsetOutOfRange
from trimq.formats.rocketmq_unit.hosts import BadMessageId, read_message_id
from trimq.protocols.contract import Reply
from trimq.protocols.rocketmq.handlers.context import Context
from trimq.protocols.rocketmq.wire.codes import RemotingRefusal, ResponseCode
from trimq.protocols.rocketmq.wire.headers import Int32, Int64
from trimq.protocols.rocketmq.wire.replies import done_when_durable
from trimq.wire.remoting import Command

_UNKNOWN, _COMMIT, _ROLLBACK = 0, 8, 12


class _Resume(msgspec.Struct):
    msgId: str


class _End(msgspec.Struct):
    producerGroup: str
    tranStateTableOffset: Int64
    commitLogOffset: Int64
    commitOrRollback: Int32
    fromTransactionCheck: bool = False


def end_transaction(context: Context, command: Command) -> Reply | None:
    header = command.read(_End)
    if header.commitOrRollback == _UNKNOWN:
        return None
    if header.commitOrRollback not in (_COMMIT, _ROLLBACK):
        raise RemotingRefusal(ResponseCode.SYSTEM_ERROR, f"{header.commitOrRollback} is neither commit nor rollback")
    placed = context.services.sending.transactions.decide(
        context.caller,
        header.producerGroup,
        header.tranStateTableOffset,
        header.commitLogOffset,
        header.commitOrRollback == _COMMIT,
        header.fromTransactionCheck,
    )
    return done_when_durable(command, placed.ticket)


def resume_check(context: Context, command: Command) -> Reply:
    context.commit_log.admin.require_administrator(context.caller)
    try:
        unit = context.commit_log.lookup.unit_at(context.caller, read_message_id(command.read(_Resume).msgId).position)
    except (BadMessageId, OffsetOutOfRange):
        raise RemotingRefusal(ResponseCode.SYSTEM_ERROR, "no message has this id") from None
    return done_when_durable(command, context.services.sending.transactions.resume(unit).ticket)
