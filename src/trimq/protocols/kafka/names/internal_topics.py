"""Names of Apache Kafka's internal topics. TriMQ keeps that state in tables, so these topics have no records: they are
listed once they are in use, and described; clients cannot read, write, create or delete them."""

from __future__ import annotations

from uuid import UUID

OFFSETS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"

# Fixed ids: clients of newer versions know topics by their ids.
IDS = {
    OFFSETS: UUID("7b1f0a52-5d0e-4b7e-9d3b-6f0c1c5f0001").bytes,
    TRANSACTIONS: UUID("7b1f0a52-5d0e-4b7e-9d3b-6f0c1c5f0002").bytes,
}
INTERNAL = frozenset(IDS)
NAMES = {id: name for name, id in IDS.items()}
PARTITIONS = 50

SETTINGS = {
    OFFSETS: {"cleanup": "compact", "compression": "producer", "segment_bytes": "104857600"},
    TRANSACTIONS: {
        "cleanup": "compact",
        "compression": "none",
        "min_synced_replicas": "1",
        "segment_bytes": "104857600",
        "unclean_election": "false",
    },
}
"""Settings under which Kafka keeps them."""
