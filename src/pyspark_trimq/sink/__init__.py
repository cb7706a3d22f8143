"""Spark sink `format("trimq")`: options, writers, and sending rows with exactly-once or at-least-once delivery."""
