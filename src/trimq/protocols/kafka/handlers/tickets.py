"""Tickets that one response waits for, by the resource that each one changes. Knows no API."""

from __future__ import annotations

from typing import Protocol

from trimq.errors import Refusal


class ChangeTicket(Protocol):
    """Ticket of one change."""

    @property
    def number(self) -> int: ...

    @property
    def refusal(self) -> Refusal | None: ...


class ChangeTickets:
    def __init__(self) -> None:
        self._tickets: dict[object, ChangeTicket] = {}
        self.number = 0

    def add(self, key: object, ticket: ChangeTicket) -> None:
        self._tickets[key] = ticket
        self.number = max(self.number, ticket.number)

    def refusal(self, key: object) -> Refusal | None:
        """Returns the refusal of the change under `key` if it could not be written. Valid once the pass is durable."""
        ticket = self._tickets.get(key)
        return None if ticket is None else ticket.refusal
