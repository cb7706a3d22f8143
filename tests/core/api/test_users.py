"""The first user: whoever comes first over the network must not become the administrator."""

from __future__ import annotations

from dataclasses import replace

import pytest
from protocols.kafka.desk import Desk

from trimq.config import Security
from trimq.core.security.access import Right, User
from trimq.errors import AccessDenied, InvalidSetting, Refusal
from trimq.model import SYSTEM, Caller
from trimq.storage.group_commit.passes import Ticket

FAR = Caller("anonymous", "", "10.0.0.1:5000", "http")
NEAR = replace(FAR, address="127.0.0.1:5000")
ADMINISTRATOR = User("eve", "hash", is_administrator=True)


def define(desk: Desk, caller: Caller, name: str = "eve") -> Ticket | Refusal:
    outcomes: list[Ticket | Refusal] = []
    desk.core.broker.users.define(caller, name, "secret", True, outcomes.append)
    desk.runner.settle()
    return outcomes[0]


def test_on_an_open_broker_the_first_user_is_defined_from_the_same_machine() -> None:
    desk = Desk()
    with pytest.raises(AccessDenied, match="on the machine of the broker, use `trimq users bootstrap NAME`"):
        define(desk, FAR)
    with pytest.raises(AccessDenied):
        desk.core.broker.users.restore(FAR, [ADMINISTRATOR], [Right("eve", "", ".*")])
    assert desk.core.broker.users.all(SYSTEM) == []
    assert not isinstance(define(desk, NEAR), Refusal)
    root = replace(FAR, principal="eve")
    assert not isinstance(define(desk, root, "alice"), Refusal)


def test_where_logins_are_required_no_anonymous_call_defines_a_user() -> None:
    desk = Desk(security=Security(mode="required"))
    for caller in (FAR, NEAR):
        with pytest.raises(AccessDenied):
            define(desk, caller)
        with pytest.raises(AccessDenied):
            desk.core.broker.users.restore(caller, [ADMINISTRATOR], [])
    assert desk.core.broker.users.all(SYSTEM) == []


def test_where_logins_are_required_the_last_administrator_stays() -> None:
    desk = Desk(security=Security(mode="required"))
    desk.core.broker.users._access.put_user(ADMINISTRATOR)
    desk.runner.settle()
    eve = replace(FAR, principal="eve")
    with pytest.raises(InvalidSetting, match="at least one administrator"):
        desk.core.broker.users.remove(eve, "eve")
    with pytest.raises(InvalidSetting, match="at least one administrator"):
        desk.core.broker.users.define(eve, "eve", None, False, lambda outcome: None)
    assert [user.name for user in desk.core.broker.users.all(eve)] == ["eve"]


def test_guest_is_no_user_where_logins_are_required() -> None:
    desk = Desk(security=Security(mode="required"))
    outcomes: list[bool] = []
    desk.core.authenticator.check("guest", "guest", "127.0.0.1:5000", outcomes.append)
    desk.runner.settle()
    assert outcomes == [False]
    assert not desk.core.broker.users.is_first_beside_guest("root")
