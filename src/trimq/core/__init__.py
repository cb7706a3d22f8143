"""Broker semantics over storage: topics, groups, queues, routing, transactions and rights. Never sees a socket or a
wire code."""
