"""Names of the files beside a segment, as Kafka names them, and the exception for companion files that cannot be
trusted."""

from __future__ import annotations

LOG = ".log"
OFFSET_INDEX = ".index"
TIME_INDEX = ".timeindex"
TRANSACTION_INDEX = ".txnindex"
PRODUCER_SNAPSHOT = ".snapshot"

# Removed together with their segment. A snapshot is named after the segment at whose first offset it was taken.
SEGMENT_COMPANIONS = (OFFSET_INDEX, TIME_INDEX, TRANSACTION_INDEX, PRODUCER_SNAPSHOT)

LEADER_EPOCHS = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"


class CorruptCompanion(ValueError):
    """A companion file has impossible contents. The log is authoritative: the caller rebuilds the file from it."""
