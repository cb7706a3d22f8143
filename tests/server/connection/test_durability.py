"""Who is told when the passes move on."""

from __future__ import annotations

from trimq.server.connection.durability import Progress


class Told:
    def __init__(self, name: str, told: list[str]) -> None:
        self.name = name
        self.told = told

    def passed(self) -> None:
        self.told.append(self.name)


def test_each_is_told_once_in_the_order_in_which_they_began_to_wait() -> None:
    progress, told = Progress(), []
    first, second, third = (Told(name, told) for name in "abc")
    for waiting in (first, second, first, third):
        progress.wait(waiting, 4)
    assert len(progress) == 3
    progress.moved(5, 4)
    assert (progress.written, progress.durable) == (5, 4)
    assert told == ["a", "b", "c"]
    progress.moved(6, 6)
    assert told == ["a", "b", "c"]
    assert len(progress) == 0


def test_nobody_is_told_before_a_pass_is_as_far_as_it_has_to_be() -> None:
    progress, told = Progress(), []
    progress.wait(Told("durable", told), 5)
    progress.wait(Told("written", told), 5, needs_sync=False)
    progress.wait(Told("later", told), 7)
    progress.moved(4, 4)
    assert told == []
    progress.moved(6, 4)
    assert told == ["written"]
    progress.moved(6, 6)
    assert told == ["written", "durable"]
    progress.moved(7, 7)
    assert told == ["written", "durable", "later"]


def test_who_waits_for_two_passes_is_told_of_each_or_of_both_at_once() -> None:
    progress, told = Progress(), []
    waiting = Told("a", told)
    for number in (1, 2, 3):
        progress.wait(waiting, number)
    progress.moved(1, 1)
    assert told == ["a"]
    progress.moved(3, 3)
    assert told == ["a", "a"]
