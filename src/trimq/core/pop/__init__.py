"""Owns POP consumption: messages that consumer groups receive one by one, with a lease and a receipt each. Knows no
protocol."""
