"""RocketMQ's layout: one commit log for all queues, with consume queues and a key index built from it."""
