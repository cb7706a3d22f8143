"""E18, Python client: one purchase by two-phase commit and by TCC; the coordinator dies after the first phase

Under two-phase commit the stock stays locked until the coordinator is back; under TCC it is reserved, and others go on.
Both end with an order and a stock that agree. The messages of the purchase are the transactional ones of e06.
"""

from __future__ import annotations

import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from trimq.client.agreeing import Cursor, Database, Decision, Tcc, TccBranch, TwoPhase


class Died(BaseException):
    """The coordinator is killed here."""


def nothing(cursor: Cursor, id: str, payload: Any) -> None:
    """A step without an effect of its own."""


class Stock:
    """Participant of a two-phase commit that holds a lock from prepare to commit or rollback."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.lock = threading.Lock()
        self.holder = ""

    def prepare(self, id: str, payload: Any) -> None:
        if self.count < payload:
            raise ValueError("sold out")
        self.lock.acquire()
        self.holder = id
        self.reserved = payload

    def commit(self, id: str) -> None:
        if self.holder == id:
            self.count -= self.reserved
            self.rollback(id)

    def rollback(self, id: str) -> None:
        if self.holder == id:
            self.holder = ""
            self.lock.release()


class Orders:
    """Participant of a two-phase commit that keeps the states of orders."""

    def __init__(self, dies: bool) -> None:
        self.states: dict[str, str] = {}
        self.dies = dies

    def prepare(self, id: str, payload: Any) -> None:
        self.states[id] = "prepared"
        if self.dies:
            raise Died

    def commit(self, id: str) -> None:
        self.states[id] = "paid"

    def rollback(self, id: str) -> None:
        self.states[id] = "cancelled"


def by_two_phase_commit(database: Database) -> None:
    stock, orders = Stock(1), Orders(dies=True)
    coordinator = TwoPhase(database, {"stock": stock, "orders": orders})
    coordinator.prepare()
    try:
        coordinator.run("order-1", 1)
    except Died:
        print(f"2PC: the coordinator died; the stock is locked: {not stock.lock.acquire(timeout=0.05)}")
    orders.dies = False
    recovered = TwoPhase(database, {"stock": stock, "orders": orders}).recover()
    assert recovered == {"order-1": Decision.ABORTED}
    assert coordinator.run("order-2", 1) is Decision.COMMITTED
    assert (stock.count, orders.states) == (0, {"order-1": "cancelled", "order-2": "paid"})
    print(f"2PC: after recovery {orders.states}, {stock.count} in stock")


def by_tcc(database: Database) -> None:
    with database.transaction() as cursor:
        cursor.execute("create table stock (free integer, held integer)")
        cursor.execute("insert into stock values (2, 0)")
        cursor.execute("create table orders (id text primary key, state text)")

    def reserve(cursor: Cursor, id: str, payload: Any) -> None:
        if not cursor.execute("update stock set free = free - ?, held = held + ? where free >= ?", *[payload] * 3):
            raise ValueError("sold out")

    def sell(cursor: Cursor, id: str, payload: Any) -> None:
        cursor.execute("update stock set held = held - ?", payload)

    def free(cursor: Cursor, id: str, payload: Any) -> None:
        cursor.execute("update stock set free = free + ?, held = held - ?", payload, payload)

    def create(cursor: Cursor, id: str, payload: Any) -> None:
        cursor.execute("insert into orders values (?, 'new')", id)

    def set_to(state: str) -> Callable[[Cursor, str, Any], object]:
        return lambda cursor, id, payload: cursor.execute("update orders set state = ? where id = ?", state, id)

    def die(cursor: Cursor, id: str, payload: Any) -> None:
        raise Died

    stock = TccBranch(database, "stock", reserve, sell, free)
    orders = TccBranch(database, "orders", create, set_to("paid"), set_to("cancelled"))
    deadly = TccBranch(database, "orders", die, nothing, nothing)
    for branch in (stock, orders):
        branch.prepare()
    coordinator = Tcc(database, {"stock": stock, "orders": deadly})
    coordinator.prepare()
    try:
        coordinator.run("order-1", 1)
    except Died:
        # Another purchase goes on meanwhile: one piece is reserved, the other one is free.
        other = Tcc(database, {"stock": stock, "orders": orders}, table="tcc_other")
        other.prepare()
        print(f"TCC: the coordinator died; another purchase: {other.run('order-2', 1).name}")
    assert Tcc(database, {"stock": stock, "orders": orders}).recover() == {"order-1": Decision.ABORTED}
    with database.transaction() as cursor:
        left = cursor.row("select free, held from stock")
        states = cursor.rows("select id, state from orders")
    assert (left, states) == ((1, 0), [("order-2", "paid")]), (left, states)
    print(f"TCC: after recovery {dict(states)}, {left[0]} in stock, {left[1]} reserved")


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        for name, buy in (("two-phase", by_two_phase_commit), ("tcc", by_tcc)):
            database = Database.sqlite(str(Path(folder, f"{name}.db")))
            buy(database)
            database.close()
    return 0


sys.exit(main())
