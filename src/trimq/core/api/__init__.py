"""Owns the operations on the core that front-ends may call, each with its access check."""
