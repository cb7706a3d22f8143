"""Codes 37 (a producer decides whether a half counts; who does not know is not answered, as the genuine broker does)
and 323 (a half that was set aside, because nobody decided, is asked for again)."""

from __future__ import annotations

import msgspec

from trimq.errors import OffsetOutOfRange
from trimq.formats.rocketmq_unit.hosts import BadMessageId, read_message_id
from trimq.protocols.contract import Reply
from trimq.protocols.rocketmq.handlers.context import Context
from trimq.protocols.rocketmq.wire.codes import RemotingRefusal, ResponseCode
from trimq.protocols.rocketmq.wire.headers import Int32, Int64
from trimq.protocols.rocketmq.wire.remoting import Command
from trimq.protocols.rocketmq.wire.replies import done_when_durable

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
    placed = context.services.transactions.decide(
        header.producerGroup,
        header.tranStateTableOffset,
        header.commitLogOffset,
        header.commitOrRollback == _COMMIT,
        header.fromTransactionCheck,
    )
    return done_when_durable(command, placed.ticket)


def resume_check(context: Context, command: Command) -> Reply:
    context.commit_log_api.require_administrator(context.caller)
    try:
        unit = context.commit_log_api.unit_at(context.caller, read_message_id(command.read(_Resume).msgId).position)
    except (BadMessageId, OffsetOutOfRange):
        raise RemotingRefusal(ResponseCode.SYSTEM_ERROR, "there is no message of this id") from None
    return done_when_durable(command, context.services.transactions.resume(unit).ticket)
