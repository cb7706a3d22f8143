"""Owns the state of connected RocketMQ clients: registry, subscriptions, queue locks, requests to them."""
