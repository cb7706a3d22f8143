"""The passes that one answer waits for, each under the name of what it changed."""

from __future__ import annotations

from typing import Protocol

from trimq.errors import Refusal


class ChangeTicket(Protocol):
    """As a change of the broker gives it out."""

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
        """Why what was changed under `key` does not count. To be asked once the pass is over."""
        ticket = self._tickets.get(key)
        return None if ticket is None else ticket.refusal
