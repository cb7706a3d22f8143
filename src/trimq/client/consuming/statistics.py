"""Counts of one consumer."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class ConsumerStatistics:
    """`known`: messages whose guard knew that they had been handled. `repeated`: messages whose handlers still ran when
    their queue went to another member, which gets them again. `expired`: messages dropped because of their time to
    live."""

    handled: int = 0
    known: int = 0
    retried: int = 0
    failed: int = 0
    given_up: int = 0
    expired: int = 0
    overdue: int = 0
    rebalances: int = 0
    repeated: int = 0
