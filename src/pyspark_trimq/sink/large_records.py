"""What the Kafka client has to be told so that it sends records of any size that a broker takes."""

from __future__ import annotations

# The client would refuse by itself what is larger than a megabyte before it is compressed: the broker knows better.
# Batches stay as small as they were, for a topic takes no more than a megabyte at once unless it is told to.
LARGE_RECORDS: dict[str, object] = {
    "message.max.bytes": 1_000_000_000,
    "batch.size": 1_000_000,
}
