"""Names of Apache Kafka's internal topics. TriMQ stores that state elsewhere, so no such topics exist: Metadata
describes them when a client asks for them by name, no API lists them, and clients cannot create or write to them."""

from __future__ import annotations

INTERNAL = frozenset(("__consumer_offsets", "__transaction_state"))
PARTITIONS = 50
