"""What the core needs of a small durable map, whoever keeps it: a table of this machine now, a shared store later."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Protocol, TypeVar

from trimq.storage.group_commit.passes import Ticket

V = TypeVar("V")


class DurableMap(Protocol[V]):
    """A change is seen at once and counts when its ticket's pass is durable; when that is refused it goes back."""

    def get(self, key: str) -> V | None: ...

    def put(self, key: str, value: V) -> Ticket: ...

    def put_all(self, keys: Sequence[str], value: V) -> Ticket:
        """All of these keys have this value."""

    def delete(self, key: str) -> Ticket: ...

    def delete_all(self, keys: Sequence[str]) -> Ticket: ...

    def items(self) -> Iterable[tuple[str, V]]: ...

    def on_undone(self, listener: Callable[[Collection[str]], None]) -> None:
        """Call `listener` with the keys that went back to what they were, as soon as they have: `get` shows it."""
