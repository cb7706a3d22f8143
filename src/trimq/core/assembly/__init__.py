"""Builds the core on top of storage, and is the only place that knows which part needs which."""
