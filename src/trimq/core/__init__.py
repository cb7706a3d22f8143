"""What a message broker means: topics, groups, queues, routing, transactions and rights, over storage. Never sees a
socket or a wire code."""
