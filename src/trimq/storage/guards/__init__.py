"""Guards: disk space, slow disk, memory, damage and quarantine."""
