"""Owns transactional messages: half messages, commit and rollback, and check-back of undecided ones."""
