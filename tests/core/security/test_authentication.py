"""Authentication: guests from this machine until users exist, then users with passwords and namespaces."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from doubles import PassRunner

from trimq.clock import ManualTime
from trimq.core.metadata.catalogue import Catalogue, Definition
from trimq.core.security.access import Access, Right
from trimq.core.security.audit_log import AuditLog
from trimq.core.security.authentication import Authenticator, is_loopback
from trimq.core.security.login_queue import LoginQueue
from trimq.metrics import Metrics
from trimq.model import Caller
from trimq.storage.io.memory_files import MemoryFiles
from trimq.storage.tables.table import open_table

HERE, THERE = "127.0.0.1:5000", "10.1.2.3:5000"


class Gate:
    """An authenticator with its own access table that counts password checks."""

    def __init__(self) -> None:
        files = MemoryFiles()
        files.make_folder("tables")
        runner = PassRunner(files)
        table = open_table(files, "tables", "catalogue", runner.passes, Definition, runner.offload)
        self.access = Access(Catalogue(table), random.Random(1).randbytes, AuditLog(Metrics(), ManualTime(0), 0))
        self.compared = 0
        logins = LoginQueue(self._work, ManualTime(0), 5000)
        self.authenticator = Authenticator(self.access, logins, random.Random(2).randbytes)

    def _work(self, work: Callable[[], object], done: Callable[[Any, Any], None]) -> None:
        self.compared += 1
        done(work(), None)

    def check(self, name: str, password: str, address: str = HERE) -> bool:
        answers: list[bool] = []
        self.authenticator.check(name, password, address, answers.append)
        (answer,) = answers
        return answer


@pytest.mark.parametrize(
    ("name", "password", "address", "expected"),
    [
        ("guest", "guest", HERE, True),
        ("guest", "guest", "[::1]:5000", True),
        ("guest", "guest", THERE, False),
        ("guest", "wrong", HERE, False),
        ("alice", "guest", HERE, False),
        ("", "", HERE, False),
    ],
)
def test_without_users_only_a_local_guest_may_log_in(name: str, password: str, address: str, expected: bool) -> None:
    assert Gate().check(name, password, address) is expected


def test_a_user_may_log_in_with_the_right_password_only() -> None:
    gate = Gate()
    gate.access.define_user("alice", "secret")
    assert gate.check("alice", "secret", THERE)
    assert not gate.check("alice", "wrong")
    assert not gate.check("bob", "secret")
    assert not gate.check("guest", "guest")


def test_a_verified_password_is_cached_until_it_changes() -> None:
    gate = Gate()
    gate.access.define_user("alice", "secret")
    assert gate.check("alice", "secret")
    assert gate.check("alice", "secret")
    assert gate.compared == 1
    assert not gate.check("alice", "wrong")
    assert gate.compared == 2
    gate.access.define_user("alice", "other")
    assert not gate.check("alice", "secret")
    gate.access.remove_user("alice")
    gate.access.define_user("bob", "b")
    assert not gate.check("alice", "other")


def caller(name: str) -> Caller:
    return Caller(name, "", "127.0.0.1:5000", "amqp")


def test_only_users_with_a_right_in_a_namespace_may_use_it() -> None:
    gate = Gate()
    assert gate.authenticator.may_access_namespace(caller("guest"), "")
    assert gate.authenticator.may_access_namespace(caller("guest"), "shop")
    gate.access.define_user("alice", "a")
    gate.access.define_user("root", "r", is_administrator=True)
    gate.access.grant(Right("alice", "shop", ".*", ".*", ".*"))
    assert gate.authenticator.may_access_namespace(caller("alice"), "shop")
    assert not gate.authenticator.may_access_namespace(caller("alice"), "")
    assert not gate.authenticator.may_access_namespace(caller("guest"), "")
    assert gate.authenticator.may_access_namespace(caller("root"), "shop")


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("127.0.0.1:1", True),
        ("127.9.9.9:1", True),
        ("[::1]:1", True),
        ("::1:1", True),
        ("10.0.0.1:1", False),
        ("", False),
    ],
)
def test_local_addresses_are_recognised(address: str, expected: bool) -> None:
    assert is_loopback(address) is expected
