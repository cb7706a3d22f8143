"""How far the passes of the broker are, and who must be told when they move on. Knows no reply and no socket."""

from __future__ import annotations

from typing import Protocol


class Waiting(Protocol):
    def release(self) -> None:
        """The numbers have moved."""


class Progress:
    """The numbers that replies wait for, and those who have such replies."""

    __slots__ = ("_waiting", "durable", "written")

    def __init__(self) -> None:
        self.written = 0
        self.durable = 0
        # A dict, not a set: they are released in the order in which they began to wait, on every run.
        self._waiting: dict[Waiting, None] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def wait(self, waiting: Waiting) -> None:
        """Tell it when the numbers move next."""
        self._waiting[waiting] = None

    def forget(self, waiting: Waiting) -> None:
        self._waiting.pop(waiting, None)

    def moved(self, written: int, durable: int) -> None:
        self.written = written
        self.durable = durable
        told, self._waiting = self._waiting, {}
        for waiting in told:
            waiting.release()
