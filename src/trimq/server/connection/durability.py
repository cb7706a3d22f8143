"""How far the passes of the broker are, and who must be told when they move on. Knows no reply and no socket."""

from __future__ import annotations

from typing import Protocol


class Waiting(Protocol):
    def passed(self) -> None:
        """A pass that it waited for is as far as it has to be."""


# Dicts, not sets: those of a pass are told in the order in which they began to wait, on every run.
_Told = dict[Waiting, None]


class Progress:
    """The numbers that replies wait for, and those who have such replies."""

    __slots__ = ("_until_durable", "_until_written", "durable", "written")

    def __init__(self) -> None:
        self.written = 0
        self.durable = 0
        self._until_written: dict[int, _Told] = {}
        self._until_durable: dict[int, _Told] = {}

    def __len__(self) -> int:
        """How many waits there are: one for each pass that somebody waits for."""
        return sum(map(len, (*self._until_written.values(), *self._until_durable.values())))

    def wait(self, waiting: Waiting, number: int, needs_sync: bool = True) -> None:
        """Tell it when this pass is durable, or, if that is enough, written."""
        waits = self._until_durable if needs_sync else self._until_written
        told = waits.get(number)
        if told is None:
            waits[number] = {waiting: None}
        else:
            told[waiting] = None

    def moved(self, written: int, durable: int) -> None:
        self.written = written
        self.durable = durable
        told = _take(self._until_written, written) if self._until_written else {}
        if self._until_durable:
            told |= _take(self._until_durable, durable)
        for waiting in told:
            waiting.passed()


def _take(waits: dict[int, _Told], reached: int) -> _Told:
    told: _Told = {}
    for number in [number for number in waits if number <= reached]:
        told |= waits.pop(number)
    return told
