"""Kafka's names and numbers for errors, settings, states and operations, and their translation to those of the core."""
