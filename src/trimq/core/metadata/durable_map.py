"""Interface of the small durable maps that the core needs: a table on this machine now, a shared store later."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Protocol, TypeVar

from trimq.storage.group_commit.passes import Ticket

V = TypeVar("V")


class DurableMap(Protocol[V]):
    """A change is visible at once and durable once its ticket's pass is durable. If the pass is refused, the change is
    rolled back."""

    def get(self, key: str) -> V | None: ...

    def put(self, key: str, value: V) -> Ticket: ...

    def put_all(self, keys: Sequence[str], value: V) -> Ticket:
        """Sets all keys to the same value."""

    def delete(self, key: str) -> Ticket: ...

    def delete_all(self, keys: Sequence[str]) -> Ticket: ...

    def items(self) -> Iterable[tuple[str, V]]: ...

    def on_undone(self, listener: Callable[[Collection[str]], None]) -> None:
        """Calls `listener` with the keys that were rolled back, as soon as `get` returns the old values."""
