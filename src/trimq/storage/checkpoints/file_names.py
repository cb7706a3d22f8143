"""The files beside a segment, named as Kafka names them, and what is raised when one of them cannot be trusted."""

from __future__ import annotations

LOG = ".log"
OFFSET_INDEX = ".index"
TIME_INDEX = ".timeindex"
TRANSACTION_INDEX = ".txnindex"
PRODUCER_SNAPSHOT = ".snapshot"

# What goes when its segment goes. A snapshot is named after the segment whose first offset it was taken at.
SEGMENT_COMPANIONS = (OFFSET_INDEX, TIME_INDEX, TRANSACTION_INDEX, PRODUCER_SNAPSHOT)

LEADER_EPOCHS = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"


class CorruptCompanion(ValueError):
    """A companion file says what cannot be. The log is the truth: whoever hears this builds the file anew from it."""
