"""Codec of RocketMQ's message units: layout, properties, hosts, key hashes, retries and dead letters."""
