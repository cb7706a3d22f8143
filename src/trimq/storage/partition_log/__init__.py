"""Kafka's layout: one log of record batches per partition, with its indexes, recovery, retention and compaction."""
