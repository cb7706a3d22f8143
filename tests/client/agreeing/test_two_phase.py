"""Two-phase commit with participants in memory, and its journal on SQLite."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from trimq.client.agreeing import Database, Decision, TwoPhase


class Died(BaseException):
    """The coordinator ends here, as by a power cut."""


class Account:
    """Participant that keeps what it prepared until it is told the decision."""

    def __init__(self, balance: int) -> None:
        self.balance = balance
        self.prepared: dict[str, int] = {}
        self.dies_at = ""

    def _check(self, phase: str) -> None:
        if self.dies_at == phase:
            self.dies_at = ""
            raise Died

    def prepare(self, id: str, payload: Any) -> None:
        self._check("before prepare")
        if self.balance - sum(self.prepared.values()) < payload:
            raise ValueError("no money")
        self.prepared[id] = payload
        self._check("after prepare")

    def commit(self, id: str) -> None:
        self._check("before commit")
        self.balance -= self.prepared.pop(id, 0)
        self._check("after commit")

    def rollback(self, id: str) -> None:
        self.prepared.pop(id, None)


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    found = Database.sqlite(str(tmp_path / "journal.db"))
    yield found
    found.close()


def coordinator(database: Database, *accounts: Account) -> TwoPhase:
    found = TwoPhase(database, {f"account-{number}": account for number, account in enumerate(accounts)})
    found.prepare()
    return found


def test_all_participants_commit_or_all_roll_back(database: Database) -> None:
    rich, poor = Account(100), Account(10)
    two_phase = coordinator(database, rich, poor)
    assert two_phase.run("t1", 10) is Decision.COMMITTED
    assert two_phase.run("t2", 10) is Decision.ABORTED
    assert (rich.balance, poor.balance) == (90, 0)
    assert not rich.prepared
    assert not poor.prepared
    assert two_phase.run("t2", 0) is Decision.COMMITTED  # ended, so the id is free again


@pytest.mark.parametrize("moment", ["before prepare", "after prepare", "before commit", "after commit"])
@pytest.mark.parametrize("which", [0, 1])
def test_participants_stay_prepared_until_the_next_coordinator_decides(
    database: Database, which: int, moment: str
) -> None:
    accounts = Account(100), Account(100)
    accounts[which].dies_at = moment
    with pytest.raises(Died):
        coordinator(database, *accounts).run("t1", 40)
    if moment == "after prepare":
        assert accounts[which].prepared == {"t1": 40}  # blocked: it may neither use nor free the money
    after = coordinator(database, *accounts)
    is_committed = "commit" in moment
    assert after.recover() == {"t1": Decision.COMMITTED if is_committed else Decision.ABORTED}
    assert [account.balance for account in accounts] == ([60, 60] if is_committed else [100, 100])
    assert not any(account.prepared for account in accounts)
    assert after.recover() == {}


def test_a_change_that_has_begun_is_not_begun_again(database: Database) -> None:
    account = Account(100)
    account.dies_at = "after prepare"
    two_phase = coordinator(database, account)
    with pytest.raises(Died):
        two_phase.run("t1", 1)
    with pytest.raises(ValueError, match="begun before"):
        two_phase.run("t1", 1)
