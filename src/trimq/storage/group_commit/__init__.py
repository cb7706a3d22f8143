"""Heart of storage: passes, the flusher, the journal and its segments make appends durable together."""
