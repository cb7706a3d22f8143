"""Clients of the broker for source, sink and pipelines: HTTP port, Kafka port, logins, TLS and retries."""
