"""How far the passes of the broker are, and who must be told when they move on. Knows no reply and no socket."""

from __future__ import annotations

from typing import Protocol


class PassWaiter(Protocol):
    def pass_reached(self) -> None:
        """A pass that it waited for is as far as it has to be."""


# Dicts, not sets: those of a pass are told in the order in which they began to wait, on every run.
_Waiters = dict[PassWaiter, None]


class PassProgress:
    """The numbers that replies wait for, and those who have such replies."""

    __slots__ = ("_until_durable", "_until_written", "durable", "written")

    def __init__(self) -> None:
        self.written = 0
        self.durable = 0
        self._until_written: dict[int, _Waiters] = {}
        self._until_durable: dict[int, _Waiters] = {}

    def __len__(self) -> int:
        """How many waits there are: one for each pass that somebody waits for."""
        return sum(map(len, (*self._until_written.values(), *self._until_durable.values())))

    def wait(self, waiting: PassWaiter, number: int, needs_sync: bool = True) -> None:
        """Tell it when this pass is durable, or, if that is enough, written."""
        waits = self._until_durable if needs_sync else self._until_written
        waiters = waits.get(number)
        if waiters is None:
            waits[number] = {waiting: None}
        else:
            waiters[waiting] = None

    def advance(self, written: int, durable: int) -> None:
        self.written = written
        self.durable = durable
        waiters = _take(self._until_written, written) if self._until_written else {}
        if self._until_durable:
            waiters |= _take(self._until_durable, durable)
        for waiting in waiters:
            waiting.pass_reached()


def _take(waits: dict[int, _Waiters], reached: int) -> _Waiters:
    waiters: _Waiters = {}
    for number in [number for number in waits if number <= reached]:
        waiters |= waits.pop(number)
    return waiters
