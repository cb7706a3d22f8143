"""Owns the operations that front-ends may call on the core, each with its access check. Nothing else in the core sees
it."""
