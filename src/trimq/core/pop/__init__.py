"""Owns POP consumption: messages that consumer groups receive one by one, each with a lease and a receipt."""
