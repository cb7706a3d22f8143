"""Metadata of the broker: definitions (the catalogue), cluster nodes, namespaces and committed offsets (cursors)."""
