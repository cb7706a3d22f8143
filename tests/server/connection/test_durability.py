"""Who is told when the passes move on."""

from __future__ import annotations

from trimq.server.connection.durability import PassProgress


class Told:
    def __init__(self, name: str, told: list[str]) -> None:
        self.name = name
        self.told = told

    def pass_reached(self) -> None:
        self.told.append(self.name)


def test_each_is_told_once_in_the_order_in_which_they_began_to_wait() -> None:
    progress, told = PassProgress(), []
    first, second, third = (Told(name, told) for name in "abc")
    for waiting in (first, second, first, third):
        progress.wait(waiting, 4)
    assert len(progress) == 3
    progress.advance(5, 4)
    assert (progress.written, progress.durable) == (5, 4)
    assert told == ["a", "b", "c"]
    progress.advance(6, 6)
    assert told == ["a", "b", "c"]
    assert len(progress) == 0


def test_nobody_is_told_before_a_pass_is_as_far_as_it_has_to_be() -> None:
    progress, told = PassProgress(), []
    progress.wait(Told("durable", told), 5)
    progress.wait(Told("written", told), 5, needs_sync=False)
    progress.wait(Told("later", told), 7)
    progress.advance(4, 4)
    assert told == []
    progress.advance(6, 4)
    assert told == ["written"]
    progress.advance(6, 6)
    assert told == ["written", "durable"]
    progress.advance(7, 7)
    assert told == ["written", "durable", "later"]


def test_who_waits_for_two_passes_is_told_of_each_or_of_both_at_once() -> None:
    progress, told = PassProgress(), []
    waiting = Told("a", told)
    for number in (1, 2, 3):
        progress.wait(waiting, number)
    progress.advance(1, 1)
    assert told == ["a"]
    progress.advance(3, 3)
    assert told == ["a", "a"]
