"""Sending: queue choice, slow brokers, retries within one time budget, batches."""
