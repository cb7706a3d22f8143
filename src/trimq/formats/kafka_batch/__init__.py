"""Codec of Kafka's record batches: header, records, compression, transaction markers."""
