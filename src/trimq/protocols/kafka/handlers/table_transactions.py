"""Which handlers serve idempotent and transactional producers."""

from __future__ import annotations

from trimq.protocols.kafka.handlers import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    describe_producers,
    describe_transactions,
    end_txn,
    init_producer_id,
    list_transactions,
    txn_offset_commit,
)

HANDLERS = {
    22: init_producer_id.handle,
    24: add_partitions_to_txn.handle,
    25: add_offsets_to_txn.handle,
    26: end_txn.handle,
    28: txn_offset_commit.handle,
    61: describe_producers.handle,
    65: describe_transactions.handle,
    66: list_transactions.handle,
}
