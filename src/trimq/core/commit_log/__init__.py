"""Owns topics, message queues, retry and dead-letter topics on the commit log (RocketMQ's layout)."""
