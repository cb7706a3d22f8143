"""Owns topics and message queues on the commit log (RocketMQ's layout): definitions, retry and dead-letter topics,
retention. Knows no protocol."""
