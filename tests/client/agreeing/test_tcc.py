"""TCC on SQLite: an order and a stock that agree, whatever is repeated, late or killed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from trimq.client.agreeing import Cursor, Database, Decision, LateTry, NotTried, Tcc, TccBranch


class Died(BaseException):
    """The coordinator ends here, as by a power cut."""


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    found = Database.sqlite(str(tmp_path / "shop.db"))
    with found.transaction() as cursor:
        cursor.execute("create table stock (free integer check (free >= 0), held integer, sold integer)")
        cursor.execute("insert into stock values (1, 0, 0)")
        cursor.execute("create table orders (id text, state text)")
    yield found
    found.close()


def stock_of(database: Database) -> tuple[Any, ...]:
    with database.transaction() as cursor:
        return cursor.row("select free, held, sold from stock") or ()


def orders_of(database: Database) -> list[tuple[Any, ...]]:
    with database.transaction() as cursor:
        return cursor.rows("select id, state from orders order by id")


def stock_branch(database: Database) -> TccBranch:
    def reserve(cursor: Cursor, id: str, payload: Any) -> None:
        cursor.execute("update stock set free = free - 1, held = held + 1")

    def sell(cursor: Cursor, id: str, payload: Any) -> None:
        cursor.execute("update stock set held = held - 1, sold = sold + 1")

    def free(cursor: Cursor, id: str, payload: Any) -> None:
        cursor.execute("update stock set held = held - 1, free = free + 1")

    found = TccBranch(database, "stock", reserve, sell, free)
    found.prepare()
    return found


def order_branch(database: Database) -> TccBranch:
    def create(cursor: Cursor, id: str, payload: Any) -> None:
        cursor.execute("insert into orders values (?, 'new')", id)

    def set_to(state: str) -> Callable[[Cursor, str, Any], object]:
        return lambda cursor, id, payload: cursor.execute("update orders set state = ? where id = ?", state, id)

    found = TccBranch(database, "order", create, set_to("paid"), set_to("cancelled"))
    found.prepare()
    return found


def test_all_branches_confirm_or_all_cancel(database: Database) -> None:
    tcc = Tcc(database, {"order": order_branch(database), "stock": stock_branch(database)})
    tcc.prepare()
    assert tcc.run("o1", {"item": 7}) is Decision.COMMITTED
    assert tcc.run("o2", {"item": 7}) is Decision.ABORTED  # nothing is left in stock
    assert orders_of(database) == [("o1", "paid"), ("o2", "cancelled")]
    assert stock_of(database) == (0, 0, 1)
    assert tcc.recover() == {}


def test_repeated_phases_have_their_effect_once(database: Database) -> None:
    stock = stock_branch(database)
    for _ in range(3):
        stock.try_("o1", None)
    assert stock_of(database) == (0, 1, 0)
    for _ in range(3):
        stock.confirm("o1", None)
    assert stock_of(database) == (0, 0, 1)
    with pytest.raises(NotTried, match="confirmed"):
        stock.cancel("o1", None)


def test_a_cancel_without_a_try_does_nothing_and_makes_the_late_try_fail(database: Database) -> None:
    stock = stock_branch(database)
    for _ in range(2):
        stock.cancel("o1", None)
    with pytest.raises(LateTry, match="cancelled before"):
        stock.try_("o1", None)
    with pytest.raises(NotTried, match="was cancelled"):
        stock.confirm("o1", None)
    with pytest.raises(NotTried, match="was not tried"):
        stock.confirm("o2", None)
    assert stock_of(database) == (1, 0, 0)


def test_two_branches_of_one_database_are_kept_apart(database: Database) -> None:
    stock, order = stock_branch(database), order_branch(database)
    stock.try_("o1", None)
    order.cancel("o1", None)
    stock.confirm("o1", None)
    assert stock_of(database) == (0, 0, 1)
    assert orders_of(database) == []


class Deadly:
    """Branch at whose phase the coordinator dies, before or after the call."""

    def __init__(self, branch: TccBranch, phase: str, is_after: bool) -> None:
        self._branch, self._phase, self._is_after = branch, phase, is_after

    def _call(self, phase: str, call: Callable[[], None]) -> None:
        if phase == self._phase and not self._is_after:
            raise Died
        call()
        if phase == self._phase:
            raise Died

    def try_(self, id: str, payload: Any) -> None:
        self._call("try", lambda: self._branch.try_(id, payload))

    def confirm(self, id: str, payload: Any) -> None:
        self._call("confirm", lambda: self._branch.confirm(id, payload))

    def cancel(self, id: str, payload: Any) -> None:
        self._call("cancel", lambda: self._branch.cancel(id, payload))


@pytest.mark.parametrize("is_after", [False, True])
@pytest.mark.parametrize("phase", ["try", "confirm"])
@pytest.mark.parametrize("branch", ["order", "stock"])
def test_a_coordinator_that_died_is_finished_by_the_next_one(
    database: Database, branch: str, phase: str, is_after: bool
) -> None:
    branches: dict[str, Any] = {"order": order_branch(database), "stock": stock_branch(database)}
    deadly = {**branches, branch: Deadly(branches[branch], phase, is_after)}
    tcc = Tcc(database, deadly)
    tcc.prepare()
    with pytest.raises(Died):
        tcc.run("o1", None)
    recovered = Tcc(database, branches).recover()
    if phase == "confirm":
        assert recovered == {"o1": Decision.COMMITTED}
        assert (orders_of(database), stock_of(database)) == ([("o1", "paid")], (0, 0, 1))
    else:
        assert recovered == {"o1": Decision.ABORTED}
        assert stock_of(database) == (1, 0, 0)
        assert orders_of(database) in ([], [("o1", "cancelled")])
    assert Tcc(database, branches).recover() == {}
