"""Contract of the ways of idempotent consumption."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any, Protocol

Work = Callable[[Any], object]
"""The handler, to be called once with what the guard hands to it: a cursor of the transaction, a fencing number, or
None."""


class Outcome(Enum):
    DONE = "done"
    """The work was done now."""

    REPEAT = "repeat"
    """The work had been done before; it was not done again."""


class Guard(Protocol):
    """Guards are called in worker threads, several at the same time."""

    def prepare(self) -> None:
        """Creates what the guard needs to store its marks, if it does not exist."""
        ...

    def attempt(self, message: Any, work: Work) -> Outcome:
        """Does the work unless it was done for this message. Raises Retry if it cannot be decided yet, and whatever the
        work raises; then its effect in the guard's database is undone."""
        ...

    def close(self) -> None: ...


def unique_id(message: Any) -> str:
    """Id that the producer's client gave the message. An id of the business is better: two sends of the same order have
    two of these."""
    found: str = message.id
    return found
