"""Read-only inspection of the data folder of a stopped broker."""
