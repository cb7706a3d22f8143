"""What one connection may hold, and what is counted of it."""

from __future__ import annotations

from dataclasses import dataclass

from trimq.metrics import Counter


@dataclass(frozen=True, slots=True)
class SessionLimits:
    pending_replies: int
    held_replies: int
    unsent_bytes: int
    idle_ms: int


@dataclass(frozen=True, slots=True)
class SessionMetrics:
    received_bytes: Counter
    sent_bytes: Counter
    requests: Counter
