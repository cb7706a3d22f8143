"""Checkpoints: the parts of the logs that a restart may trust without reading them."""
