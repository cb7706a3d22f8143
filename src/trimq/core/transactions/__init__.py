"""Transactions of producers: their coordinator, states, markers and producer ids."""
