"""Long requests are worked on a slice at a time, all of them together."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from trimq.errors import UnknownTopic
from trimq.server.http.responses import DeferredResponse, HttpResponse
from trimq.server.http.slices import SLICE_MS, SliceRunner, Steps, list_response, sort_names
from trimq.storage.group_commit.passes import Ticket


class SlowTime:
    """Each look at the clock takes a millisecond."""

    def __init__(self) -> None:
        self.ms = 0

    def now_ms(self) -> int:
        self.ms += 1
        return self.ms

    def call_at(self, due_ms: int, callback: Callable[[], None]) -> None:
        raise NotImplementedError


class World:
    def __init__(self) -> None:
        self.soon: list[Callable[[], None]] = []
        self.runner = SliceRunner(SlowTime(), self.soon.append)  # type: ignore[arg-type]
        self.responses: list[tuple[str, HttpResponse]] = []
        self.steps: list[str] = []

    def count(self, name: str, steps: int) -> Steps[HttpResponse]:
        for _ in range(steps):
            self.steps.append(name)
            yield
        return HttpResponse.text(200, name)

    def ask(self, name: str, work: Steps[HttpResponse]) -> HttpResponse | None:
        found = self.runner.respond(f"GET /{name}", work)
        if isinstance(found, HttpResponse):
            return found
        assert isinstance(found, DeferredResponse)
        found.begin(lambda response: self.responses.append((name, response)))
        return None

    def turn(self) -> None:
        callbacks, self.soon[:] = list(self.soon), []
        for callback in callbacks:
            callback()

    def settle(self) -> int:
        turns = 0
        while self.soon:
            self.turn()
            turns += 1
        return turns


def test_short_work_is_answered_at_once() -> None:
    world = World()
    answer = world.ask("a", world.count("a", 1))
    assert answer is not None
    assert answer.body == b"a"
    assert world.soon == []


def test_long_work_takes_several_turns() -> None:
    world = World()
    assert world.ask("a", world.count("a", 10)) is None
    assert len(world.steps) == SLICE_MS
    assert world.settle() >= 4
    ((name, answer),) = world.responses
    assert (name, answer.body, len(world.steps)) == ("a", b"a", 10)


def test_many_long_requests_share_one_slice_per_turn() -> None:
    world = World()
    for name in "abc":
        world.ask(name, world.count(name, 6))
    seen = len(world.steps)
    while world.soon:
        world.turn()
        assert len(world.steps) - seen <= SLICE_MS
        seen = len(world.steps)
    assert {name for name, _ in world.responses} == set("abc")
    assert "".join(world.steps) != "".join(sorted(world.steps))  # in turn, not one after the other


def failing(error: Exception, after: int) -> Steps[HttpResponse]:
    for _ in range(after):
        yield
    raise error


def test_a_refusal_of_the_first_slice_is_raised() -> None:
    world = World()
    with pytest.raises(UnknownTopic):
        world.ask("a", failing(UnknownTopic("orders"), 0))


@pytest.mark.parametrize(("error", "status"), [(UnknownTopic("orders"), 404), (RuntimeError("planted"), 500)])
def test_work_that_fails_later_is_answered_all_the_same(error: Exception, status: int) -> None:
    world = World()
    world.ask("a", failing(error, 9))
    world.ask("b", world.count("b", 3))
    world.settle()
    assert {name: answer.status for name, answer in world.responses} == {"a": status, "b": 200}


def complete(response: HttpResponse) -> bytes:
    return b"".join([response.body, *map(bytes, response.parts)])


@pytest.mark.parametrize("count", [0, 1, 63, 64, 65, 5000])
def test_a_list_is_the_same_in_slices_as_in_one_piece(count: int) -> None:
    world = World()
    rows = [{"name": f"q-{number}", "note": "é" * 20} for number in range(count)]
    with_gaps = [row for each in rows for row in (None, each)]
    answer = world.ask("a", list_response("rows", with_gaps))
    if answer is None:
        world.settle()
        ((_, answer),) = world.responses
    assert json.loads(complete(answer)) == {"rows": rows}
    assert answer.length == len(complete(answer))


def finish(steps: Steps[object]) -> object:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


def test_other_fields_precede_the_list() -> None:
    response = finish(list_response("cursors", [1, 2], {"name": "a", "members": []}, lambda: Ticket(7)))
    assert isinstance(response, HttpResponse)
    assert response.body == b'{"name":"a","members":[],"cursors":[1,2]}'
    assert response.ticket is not None
    assert response.ticket.number == 7


def test_names_are_sorted_in_steps() -> None:
    names = [str(number * 7919 % 3001) for number in range(3000)]
    assert list(finish(sort_names([None, *names]))) == sorted(names)  # type: ignore[call-overload]
