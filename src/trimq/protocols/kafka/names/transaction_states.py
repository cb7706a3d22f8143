"""The states of a transaction in Kafka's words."""

from __future__ import annotations

from trimq.core.transactions.transaction import TransactionState

STATE_NAMES = {
    TransactionState.EMPTY: "Empty",
    TransactionState.ONGOING: "Ongoing",
    TransactionState.PREPARE_COMMIT: "PrepareCommit",
    TransactionState.PREPARE_ABORT: "PrepareAbort",
    TransactionState.COMPLETE_COMMIT: "CompleteCommit",
    TransactionState.COMPLETE_ABORT: "CompleteAbort",
}
# Kafka's states that a transaction is never seen in here: who asks for them gets none, and no complaint.
TRANSIENT_STATE_NAMES = ("Dead", "PrepareEpochFence")
