"""Builds the core on top of storage. The only place that knows which part needs which."""
