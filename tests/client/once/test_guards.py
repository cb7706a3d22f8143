"""Ways of idempotent consumption on SQLite, and their behaviour that no other database changes."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from client.once import scenarios
from client.once.cases import POINTS, SQL_WAYS, Paid, Spec, handle, make_tables, open_database, payments

from trimq.client import GiveUp, Retry
from trimq.client.databases import Database
from trimq.client.once import Outcome, States, Token, UniqueTable, Versioned


@pytest.fixture
def spec(tmp_path: Path) -> Spec:
    return {"kind": "sqlite", "path": str(tmp_path / "shop.db")}


@pytest.mark.parametrize("way", SQL_WAYS)
def test_a_repeated_message_has_its_effect_once(way: str, spec: Spec) -> None:
    scenarios.check_repeats(way, spec)


@pytest.mark.parametrize("way", SQL_WAYS)
def test_a_failed_work_leaves_nothing_and_is_done_again(way: str, spec: Spec) -> None:
    scenarios.check_failures(way, spec)


@pytest.mark.parametrize("way", SQL_WAYS)
def test_of_consumers_at_the_same_instant_one_does_the_work(way: str, spec: Spec) -> None:
    scenarios.check_rivals(way, spec)


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("way", SQL_WAYS)
def test_a_killed_consumer_leaves_no_half_effect(way: str, point: str, spec: Spec) -> None:
    scenarios.check_death(way, spec, point)


def test_a_message_for_a_later_version_waits_for_the_earlier_ones(spec: Spec) -> None:
    make_tables(spec)
    database = open_database(spec)
    guard = Versioned(database, "orders", lambda paid: (paid.order, paid.version))
    with pytest.raises(Retry, match="needs version 1"):
        guard.attempt(Paid(version=1), lambda cursor: None)
    with pytest.raises(Retry, match="does not exist"):
        guard.attempt(Paid(order=43), lambda cursor: None)
    assert guard.attempt(Paid(), lambda cursor: None) is Outcome.DONE
    assert guard.attempt(Paid(version=1), lambda cursor: None) is Outcome.DONE
    assert guard.attempt(Paid(), lambda cursor: None) is Outcome.REPEAT
    guard.close()


def test_states_wait_for_the_step_before_and_give_up_on_impossible_ones(spec: Spec) -> None:
    make_tables(spec)
    database = open_database(spec)
    steps = {"new": ("paid", "cancelled"), "paid": "sent"}
    guard = States(database, "orders", steps, lambda paid: (paid.order, paid.state))
    with pytest.raises(Retry, match="state 'new'"):
        guard.attempt(Paid(state="sent"), lambda cursor: None)
    assert guard.attempt(Paid(state="paid"), lambda cursor: None) is Outcome.DONE
    assert guard.attempt(Paid(state="sent"), lambda cursor: None) is Outcome.DONE
    assert guard.attempt(Paid(state="paid"), lambda cursor: None) is Outcome.REPEAT
    with pytest.raises(GiveUp, match="cannot be reached"):
        guard.attempt(Paid(state="cancelled"), lambda cursor: None)
    with pytest.raises(GiveUp, match="no step"):
        guard.attempt(Paid(state="lost"), lambda cursor: None)
    with pytest.raises(Retry, match="does not exist"):
        guard.attempt(Paid(order=43), lambda cursor: None)
    guard.close()


class _Remembered:
    """Cache that can be lost."""

    def __init__(self) -> None:
        self.ids: set[str] = set()

    def has(self, id: str) -> bool:
        return id in self.ids

    def put(self, id: str) -> None:
        self.ids.add(id)

    def close(self) -> None:
        self.ids.clear()


def test_a_lost_cache_does_not_repeat_the_work(spec: Spec) -> None:
    make_tables(spec)
    cache = _Remembered()
    guard = Token(cache, open_database(spec))
    guard.prepare()
    done: list[object] = []
    assert guard.attempt(Paid(), done.append) is Outcome.DONE
    assert guard.attempt(Paid(), done.append) is Outcome.REPEAT
    cache.ids.clear()
    assert guard.attempt(Paid(), done.append) is Outcome.REPEAT
    assert cache.ids == {"order-42"}
    assert len(done) == 1
    guard.close()


def test_old_marks_are_forgotten(spec: Spec) -> None:
    make_tables(spec)
    assert handle("unique", spec) is Outcome.DONE
    guard = UniqueTable(open_database(spec))
    assert guard.knows("order-42")
    assert guard.forget(datetime(2020, 1, 1, tzinfo=UTC)) == 0
    assert guard.forget(datetime(2100, 1, 1, tzinfo=UTC)) == 1
    assert not guard.knows("order-42")
    guard.close()
    assert payments(spec) == 1


def test_names_that_need_quotes_and_ids_that_do_not_fit_are_refused(spec: Spec) -> None:
    make_tables(spec)
    database = open_database(spec)
    with pytest.raises(ValueError, match="no plain SQL name"):
        UniqueTable(database, "consumed; drop table orders")
    guard = UniqueTable(database)
    guard.prepare()
    with pytest.raises(ValueError, match="1 to 255 characters"):
        guard.attempt(Paid(id="x" * 256), lambda cursor: None)
    guard.close()


def test_a_missing_driver_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(ImportError, match="client-postgres"):
        Database.postgres("dbname=shop")
