"""Consuming: allocation of queues to members, pulling, handling, offsets."""
