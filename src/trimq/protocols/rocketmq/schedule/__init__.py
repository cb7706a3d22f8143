"""Owns delayed messages: where they wait, their timers, delivery, recall, and recovery after a restart."""
