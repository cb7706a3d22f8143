from __future__ import annotations

import random
from dataclasses import replace

import pytest
from doubles import FaultyFiles, PassRunner

from trimq.clock import ManualTime
from trimq.core.metadata.catalogue import Catalogue, Definition
from trimq.core.security.access import BROKER, Access, Action, Resource, ResourceKind, Right
from trimq.core.security.audit_log import AuditLog
from trimq.errors import AccessDenied, InvalidSetting, UnknownUser
from trimq.metrics import Metrics
from trimq.model import SYSTEM, Caller
from trimq.storage.io.files import Files
from trimq.storage.io.memory_files import MemoryFiles
from trimq.storage.tables.table import open_table

ALICE = Caller("alice", "client", "10.0.0.1", "kafka")
ORDERS = Resource(ResourceKind.TOPIC, "", "orders")
CONFIGURE = {Action.CREATE, Action.DELETE, Action.ALTER, Action.ALTER_CONFIGS}
DESCRIBE = {Action.DESCRIBE, Action.DESCRIBE_CONFIGS}


def open_access(files: Files, runner: PassRunner) -> Access:
    table = open_table(files, "meta", "catalogue", runner.passes, Definition, runner.offload)
    return Access(Catalogue(table), random.Random(1).randbytes, AuditLog(Metrics(), ManualTime(0), 0))


def allowed(access: Access, resource: Resource, caller: Caller = ALICE) -> set[Action]:
    return {action for action in Action if access.allowed(caller, action, resource)}


@pytest.fixture
def files() -> FaultyFiles:
    return FaultyFiles(MemoryFiles())


@pytest.fixture
def runner(files: FaultyFiles) -> PassRunner:
    return PassRunner(files)


@pytest.fixture
def access(files: FaultyFiles, runner: PassRunner) -> Access:
    """With one user, so that permissions are enforced."""
    access = open_access(files, runner)
    access.define_user("root", "secret", is_administrator=True)
    runner.settle()
    return access


def test_everyone_is_allowed_everything_while_no_user_is_defined(files: FaultyFiles, runner: PassRunner) -> None:
    access = open_access(files, runner)
    access.grant(Right("alice", "", read="nothing"))
    assert allowed(access, ORDERS) == set(Action)
    access.define_user("root", "secret")
    assert allowed(access, ORDERS) == set()
    access.remove_user("root")
    assert allowed(access, ORDERS) == set(Action)


@pytest.mark.parametrize(
    ("right", "name", "expected"),
    [
        (Right("alice", "", configure=".*"), "orders", CONFIGURE | DESCRIBE),
        (Right("alice", "", write="^ord"), "orders", {Action.WRITE} | DESCRIBE),
        (Right("alice", "", read="der"), "orders", {Action.READ} | DESCRIBE),
        (Right("alice", "", read="^der"), "orders", set()),
        (Right("alice", "", read="orders$"), "orders\n", {Action.READ} | DESCRIBE),
        (Right("alice", ""), "orders", set()),
        (Right("alice", ""), "", CONFIGURE | DESCRIBE | {Action.WRITE, Action.READ}),
        (Right("alice", "other", ".*", ".*", ".*"), "orders", set()),
        (Right("bob", "", ".*", ".*", ".*"), "orders", set()),
        (Right("alice", "", ".*", ".*", ".*"), "orders", CONFIGURE | DESCRIBE | {Action.WRITE, Action.READ}),
    ],
)
def test_a_right_allows_the_actions_of_its_patterns(
    access: Access, right: Right, name: str, expected: set[Action]
) -> None:
    access.grant(right)
    assert allowed(access, Resource(ResourceKind.TOPIC, "", name)) == expected


def test_a_right_applies_to_one_namespace(access: Access) -> None:
    access.grant(Right("alice", "shop", read=".*"))
    assert access.allowed(ALICE, Action.READ, ORDERS._replace(namespace="shop"))
    assert not access.allowed(ALICE, Action.READ, ORDERS)


def test_permissions_give_nothing_on_the_broker_itself(access: Access) -> None:
    access.grant(Right("alice", "", ".*", ".*", ".*"))
    assert allowed(access, BROKER) == set()


def test_an_administrator_and_the_broker_itself_may_do_everything(access: Access) -> None:
    assert allowed(access, BROKER, replace(ALICE, principal="root")) == set(Action)
    assert allowed(access, BROKER, SYSTEM) == set(Action)


def test_a_user_named_like_the_broker_has_no_special_rights(access: Access) -> None:
    assert allowed(access, ORDERS, replace(SYSTEM, address="10.0.0.1")) == set()


def test_a_denial_names_the_user_the_action_and_the_resource(access: Access) -> None:
    with pytest.raises(AccessDenied, match="alice may not write topic orders of shop"):
        access.require(ALICE, Action.WRITE, ORDERS._replace(namespace="shop"))
    access.grant(Right("alice", "shop", write="orders"))
    access.require(ALICE, Action.WRITE, ORDERS._replace(namespace="shop"))


def test_a_cached_decision_is_dropped_after_a_change(access: Access) -> None:
    assert not access.allowed(ALICE, Action.READ, ORDERS)
    access.grant(Right("alice", "", read="orders"))
    assert access.allowed(ALICE, Action.READ, ORDERS)
    access.grant(Right("alice", "", read="bills"))
    assert not access.allowed(ALICE, Action.READ, ORDERS)
    access.grant(Right("alice", "", read="orders"))
    assert access.revoke("alice", "") is not None
    assert not access.allowed(ALICE, Action.READ, ORDERS)
    assert access.revoke("alice", "") is None


def test_a_change_of_the_administrator_flag_takes_effect_at_once(access: Access) -> None:
    assert not access.allowed(ALICE, Action.READ, ORDERS)
    access.define_user("alice", "secret", is_administrator=True)
    assert access.allowed(ALICE, Action.READ, ORDERS)
    access.remove_user("alice")
    assert not access.allowed(ALICE, Action.READ, ORDERS)


def test_cached_decisions_are_bounded_and_stay_correct(access: Access, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trimq.core.security.access._CACHED_DECISIONS", 4)
    access.grant(Right("alice", "", read="[02468]$"))
    for _ in range(2):
        for number in range(20):
            resource = Resource(ResourceKind.TOPIC, "", f"t{number}")
            assert access.allowed(ALICE, Action.READ, resource) is (number % 2 == 0)
    assert len(access._decisions) <= 4


def test_users_and_rights_survive_a_restart(files: FaultyFiles, runner: PassRunner, access: Access) -> None:
    right = Right("a/b", "c/d", "x", "y", "z")
    access.grant(right)
    runner.settle()
    again = open_access(files, PassRunner(files))
    assert again.rights() == [right]
    assert again.users() == access.users()
    assert again.verify("root", "secret")


def test_a_password_is_verified_and_may_be_changed(access: Access) -> None:
    assert access.verify("root", "secret")
    assert not access.verify("root", "Secret")
    assert not access.verify("nobody", "secret")
    access.define_user("root", "other")
    assert not access.verify("root", "secret")
    assert access.verify("root", "other")
    assert "secret" not in repr(access.users())


def test_removing_a_user_removes_its_rights(access: Access) -> None:
    access.define_user("alice", "secret")
    access.grant(Right("alice", "", read=".*"))
    access.grant(Right("alice", "shop", read=".*"))
    access.grant(Right("bob", "", read=".*"))
    access.remove_user("alice")
    assert [user.name for user in access.users()] == ["root"]
    assert [right.principal for right in access.rights()] == ["bob"]
    with pytest.raises(UnknownUser, match="alice"):
        access.remove_user("alice")


@pytest.mark.parametrize("field", ["configure", "write", "read"])
def test_an_invalid_pattern_is_refused(access: Access, field: str) -> None:
    with pytest.raises(InvalidSetting, match=field):
        access.grant(Right("alice", "", **{field: "("}))
    assert access.rights() == []


def test_a_user_without_a_name_is_refused(access: Access) -> None:
    with pytest.raises(InvalidSetting, match="name"):
        access.define_user("", "secret")


def test_a_right_whose_write_failed_is_not_granted(files: FaultyFiles, runner: PassRunner, access: Access) -> None:
    files.room_bytes = 0
    access.grant(Right("alice", "", read=".*"))
    access.define_user("alice", "secret", is_administrator=True)
    assert access.allowed(ALICE, Action.READ, ORDERS)
    runner.settle()
    assert allowed(access, ORDERS) == set()
    assert [user.name for user in access.users()] == ["root"]
