"""Code 37: a producer decides whether a half counts. Who does not know is not answered, as the genuine broker does."""

from __future__ import annotations

import msgspec

from trimq.protocols.contract import Reply
from trimq.protocols.rocketmq.codes import Code, Failure
from trimq.protocols.rocketmq.handlers.context import Context
from trimq.protocols.rocketmq.handlers.replies import done_when_durable
from trimq.protocols.rocketmq.remoting import Command

_UNKNOWN, _COMMIT, _ROLLBACK = 0, 8, 12


class _End(msgspec.Struct):
    producerGroup: str
    tranStateTableOffset: int
    commitLogOffset: int
    commitOrRollback: int
    fromTransactionCheck: bool = False


def end_transaction(context: Context, command: Command) -> Reply | None:
    header = command.read(_End)
    if header.commitOrRollback == _UNKNOWN:
        return None
    if header.commitOrRollback not in (_COMMIT, _ROLLBACK):
        raise Failure(Code.SYSTEM_ERROR, f"{header.commitOrRollback} is neither commit nor rollback")
    placed = context.shared.transactions.decide(
        header.producerGroup,
        header.tranStateTableOffset,
        header.commitLogOffset,
        header.commitOrRollback == _COMMIT,
        header.fromTransactionCheck,
    )
    return done_when_durable(command, placed.ticket)
