"""The names under which Kafka keeps its own state. Here that state is elsewhere, so the names stand for no topic: they
are answered when asked for, never listed, and nobody may write to them or make them."""

from __future__ import annotations

INTERNAL = frozenset(("__consumer_offsets", "__transaction_state"))
PARTITIONS = 50
