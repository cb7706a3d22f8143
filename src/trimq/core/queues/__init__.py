"""AMQP queues: classic, quorum and stream queues, their consumers, policies, dead letters and delayed messages."""
