"""Kafka protocol: front-end, request handlers, names of errors and settings, message schemas, wire format."""
