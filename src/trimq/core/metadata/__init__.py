"""Metadata of the broker: definitions (the catalogue), names across layouts, cluster nodes, namespaces and committed
offsets (cursors)."""
