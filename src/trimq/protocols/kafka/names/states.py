"""Kafka's names for the kinds and states of groups and for the states of transactions."""

from __future__ import annotations

from trimq.core.groups.group import GroupDescription, GroupKind, GroupState
from trimq.core.transactions.transaction import TransactionState

CLASSIC, CONSUMER = "classic", "consumer"
DEAD = "Dead"

_TYPES = {GroupKind.MEMBER_ASSIGNED: CLASSIC, GroupKind.BROKER_ASSIGNED: CONSUMER}
_CLASSIC_STATES = {GroupState.PREPARING_REBALANCE: "PreparingRebalance", GroupState.ASSIGNING: "CompletingRebalance"}


def type_name(group: GroupDescription) -> str:
    return _TYPES[group.kind]


def state_name(group: GroupDescription) -> str:
    if group.kind is GroupKind.MEMBER_ASSIGNED and group.state in _CLASSIC_STATES:
        return _CLASSIC_STATES[group.state]
    return group.state.value.capitalize()


STATE_NAMES = {
    TransactionState.EMPTY: "Empty",
    TransactionState.ONGOING: "Ongoing",
    TransactionState.PREPARE_COMMIT: "PrepareCommit",
    TransactionState.PREPARE_ABORT: "PrepareAbort",
    TransactionState.COMPLETE_COMMIT: "CompleteCommit",
    TransactionState.COMPLETE_ABORT: "CompleteAbort",
}
# States of Apache Kafka that no transaction has here: as a filter they are valid and match nothing.
TRANSIENT_STATE_NAMES = ("Dead", "PrepareEpochFence")
