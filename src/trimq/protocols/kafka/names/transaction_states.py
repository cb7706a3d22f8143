"""The states of a transaction in Kafka's words."""

from __future__ import annotations

from trimq.core.transactions.transaction import State

STATE_NAMES = {
    State.EMPTY: "Empty",
    State.ONGOING: "Ongoing",
    State.PREPARE_COMMIT: "PrepareCommit",
    State.PREPARE_ABORT: "PrepareAbort",
    State.COMPLETE_COMMIT: "CompleteCommit",
    State.COMPLETE_ABORT: "CompleteAbort",
}
# Kafka's states that a transaction is never seen in here: who asks for them gets none, and no complaint.
PASSING_NAMES = ("Dead", "PrepareEpochFence")
