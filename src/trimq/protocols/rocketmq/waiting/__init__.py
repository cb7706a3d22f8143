"""Requests of RocketMQ clients that wait: POP long polls, cold reads and flush timeouts."""
