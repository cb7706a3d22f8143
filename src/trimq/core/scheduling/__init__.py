"""Scheduling in the core: timers, leases of messages in flight, and waiters for new messages."""
