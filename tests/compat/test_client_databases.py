"""Outbox, TCC and two-phase commit on PostgreSQL and MariaDB."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from compat.database_servers import mariadb_server, postgres_server

from trimq.client import Message
from trimq.client.agreeing import Cursor, Decision, LateTry, PostgresParticipant, TccBranch, TwoPhase
from trimq.client.databases import Database
from trimq.client.outbox import Outbox, OutboxRow

pytestmark = pytest.mark.external


class Died(BaseException):
    """The coordinator ends here, as by a power cut."""


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("servers")
    with ExitStack() as started:
        conninfo = started.enter_context(postgres_server(folder))
        yield {"postgres": conninfo, "mysql": started.enter_context(mariadb_server(folder))}


@pytest.fixture(params=["postgres", "mysql"])
def database(request: pytest.FixtureRequest, servers: dict[str, Any]) -> Iterator[Database]:
    found = (
        Database.postgres(servers["postgres"]) if request.param == "postgres" else Database.mysql(**servers["mysql"])
    )
    with found.transaction() as cursor:
        for table in ("outbox", "tcc_branches", "stock"):
            cursor.execute(f"drop table if exists {table}")
        cursor.execute("create table stock (free bigint)")
        cursor.execute("insert into stock (free) values (?)", 10)
    yield found
    found.close()


def free(database: Database) -> int:
    with database.transaction() as cursor:
        found = cursor.row("select free from stock")
    assert found is not None
    return int(found[0])


def test_relays_that_claim_at_the_same_time_share_the_messages_and_keep_the_order_of_a_key(database: Database) -> None:
    outbox = Outbox(database)
    outbox.prepare()
    with database.transaction() as cursor:
        for number in range(40):
            message = Message(b"%d" % number, key=f"k{number % 4}", tag="t", keys=["a"], headers={"x": "é"})
            outbox.add(cursor, "orders", message)
    sent: list[OutboxRow] = []
    begin = threading.Barrier(4)

    def relay(owner: str) -> None:
        begin.wait(30)
        while outbox.counts()["waiting"]:
            for row in outbox.claim(owner, 10, 60_000):
                sent.append(row)
                outbox.sent(owner, row)

    threads = [threading.Thread(target=relay, args=(f"relay-{number}",)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(int(row.message.body) for row in sent) == list(range(40))
    for key in range(4):
        of_key = [int(row.message.body) for row in sent if row.message.key == f"k{key}"]
        assert of_key == sorted(of_key)
    assert sent[0].message.headers == {"x": "é"}
    assert (sent[0].message.tag, sent[0].message.keys, sent[0].topic) == ("t", ["a"], "orders")


def test_a_message_is_given_up_with_its_compensation_in_one_transaction(database: Database) -> None:
    outbox = Outbox(database)
    outbox.prepare()
    with database.transaction() as cursor:
        outbox.add(cursor, "orders", Message(b"paid"))
    (row,) = outbox.claim("relay", 10, 60_000)
    outbox.not_sent("relay", row, "refused", 0)
    (row,) = outbox.claim("relay", 10, 60_000)
    assert row.tries == 1

    def compensate(cursor: Cursor, row: OutboxRow) -> None:
        cursor.execute("update stock set free = free + 1")

    assert outbox.give_up("relay", row, "refused", compensate)
    assert not outbox.give_up("relay", row, "refused", None)
    assert free(database) == 11
    assert outbox.counts() == {"waiting": 0, "given up": 1}


def test_phases_of_tcc_that_race_have_their_effect_once(database: Database) -> None:
    def add(count: int) -> Any:
        return lambda cursor, id, payload: cursor.execute("update stock set free = free + ?", count)

    branch = TccBranch(database, "stock", add(-1), add(0), add(1))
    branch.prepare()
    begin = threading.Barrier(8)
    late: list[bool] = []

    def race(number: int) -> None:
        begin.wait(30)
        if number % 2:
            branch.cancel("order-1", None)
            return
        try:
            branch.try_("order-1", None)
        except LateTry:
            late.append(True)

    threads = [threading.Thread(target=race, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert free(database) == 10
    with pytest.raises(LateTry):
        branch.try_("order-1", None)


def test_postgres_keeps_a_prepared_change_until_the_next_coordinator_decides(
    servers: dict[str, Any], tmp_path: Path
) -> None:
    conninfo = servers["postgres"]
    shop = Database.postgres(conninfo)
    with shop.transaction() as cursor:
        cursor.execute("drop table if exists stock")
        cursor.execute("create table stock (free bigint check (free >= 0))")
        cursor.execute("insert into stock values (1)")

    def take(cursor: Cursor, payload: Any) -> None:
        cursor.execute("update stock set free = free - ?", payload)

    class Second:
        """Participant at which the coordinator dies."""

        def __init__(self, dies_at: str) -> None:
            self.dies_at = dies_at

        def prepare(self, id: str, payload: Any) -> None:
            if self.dies_at == "prepare":
                raise Died

        def commit(self, id: str) -> None:
            if self.dies_at == "commit":
                raise Died

        def rollback(self, id: str) -> None:
            """Nothing was prepared."""

    stock = PostgresParticipant(conninfo, "stock", take)
    journal = Database.sqlite(str(tmp_path / "journal.db"))

    def coordinator(dies_at: str = "") -> TwoPhase:
        found = TwoPhase(journal, {"second": Second(dies_at), "stock": stock})
        if dies_at == "prepare":
            found = TwoPhase(journal, {"stock": stock, "second": Second(dies_at)})
        found.prepare()
        return found

    with pytest.raises(Died):
        coordinator("prepare").run("order-1", 1)
    assert stock.prepared() == ["order-1"]
    assert coordinator().recover() == {"order-1": Decision.ABORTED}
    assert (stock.prepared(), free(shop)) == ([], 1)
    with pytest.raises(Died):
        coordinator("commit").run("order-2", 1)
    assert stock.prepared() == ["order-2"]
    assert coordinator().recover() == {"order-2": Decision.COMMITTED}
    assert (stock.prepared(), free(shop)) == ([], 0)
    assert coordinator().run("order-3", 1) is Decision.ABORTED  # sold out
    stock.commit("order-2")  # again, without effect
    assert (stock.prepared(), free(shop)) == ([], 0)
    shop.close()
    journal.close()
