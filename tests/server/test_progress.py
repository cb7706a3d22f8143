"""Who is told when the passes move on."""

from __future__ import annotations

from trimq.server.progress import Progress


class Told:
    def __init__(self, name: str, told: list[str], again: Progress | None = None) -> None:
        self.name = name
        self.told = told
        self.again = again

    def release(self) -> None:
        self.told.append(self.name)
        if self.again is not None:
            self.again.wait(self)


def test_each_is_told_once_in_the_order_in_which_they_began_to_wait() -> None:
    progress, told = Progress(), []
    first, second, third = (Told(name, told) for name in "abc")
    for waiting in (first, second, first, third):
        progress.wait(waiting)
    progress.forget(second)
    progress.moved(5, 4)
    assert (progress.written, progress.durable) == (5, 4)
    assert told == ["a", "c"]
    progress.moved(6, 6)
    assert told == ["a", "c"]
    assert len(progress) == 0


def test_who_waits_again_is_told_at_the_next_move() -> None:
    progress, told = Progress(), []
    progress.wait(Told("a", told, progress))
    progress.moved(1, 1)
    assert told == ["a"]
    progress.moved(2, 2)
    assert told == ["a", "a"]
