"""Ledger of failed messages: expired, rejected, overflowed, over the delivery limit, or left undecided."""
