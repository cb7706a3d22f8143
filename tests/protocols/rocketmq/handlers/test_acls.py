"""RocketMQ's ACL requests: what is written is read back, decides for clients, and is in the one table of entries."""

from __future__ import annotations

import json
from typing import Any

import pytest
from protocols.rocketmq.rocketmq_desk import Desk
from protocols.rocketmq.test_logins import Signed, guarded

from trimq.core.security.acl_entries import AclEntry
from trimq.core.security.resources import Action, ResourceKind
from trimq.model import SYSTEM
from trimq.protocols.rocketmq.wire.codes import ResponseCode
from trimq.wire.remoting import Command

SUCCESS, NO_PERMISSION = ResponseCode.SUCCESS, ResponseCode.NO_PERMISSION
CREATE, UPDATE, DELETE, GET, LIST = range(3006, 3011)


class Acls:
    """Requests of an administrator about the policies of bob, who has no right at first."""

    def __init__(self) -> None:
        self.desk = guarded(Desk())
        self.root = Signed(self.desk.broker, "root")
        assert self.root.send("t").code == SUCCESS
        self.bob = Signed(self.desk.connect(), "bob")

    def write(self, *entries: dict[str, Any], code: int = CREATE, subject: str = "User:bob") -> Command:
        body = {"subject": subject, "policies": [{"policyType": "Custom", "entries": list(entries)}]}
        return self.root.ask(code, {"subject": subject}, json.dumps(body).encode())

    def delete(self, **fields: str) -> Command:
        return self.root.ask(DELETE, {"subject": "User:bob", **fields})

    def read(self, subject: str = "User:bob") -> list[dict[str, Any]]:
        answer = self.root.ask(GET, {"subject": subject})
        assert answer.code == SUCCESS, answer.remark
        if not answer.body:
            return []
        found = json.loads(bytes(answer.body))
        assert found["subject"] == subject
        (policy,) = found["policies"]
        assert policy["policyType"] == "Custom"
        entries: list[dict[str, Any]] = policy["entries"]
        return entries


def entry(resource: str, *actions: str, decision: str = "Allow", **more: object) -> dict[str, Any]:
    return {"resource": resource, "actions": list(actions), "decision": decision, **more}


def test_policies_are_read_back_as_they_were_written() -> None:
    acls = Acls()
    written = [
        entry("Topic:*", "Get", "List"),
        entry("Topic:orders", "Pub", "Sub", sourceIps=["10.0.0.0/8", "127.0.0.1"]),
        entry("Topic:orders-*", "All", decision="Deny"),
        entry("Group:g", "Sub", "Create", "Update", "Delete", "Get", "List"),
        entry("Cluster:DefaultCluster", "Get"),
        entry("Cluster:*", "Update"),
    ]
    assert acls.write(*written).code == SUCCESS
    key = json.dumps
    assert sorted(acls.read(), key=key) == sorted(written, key=key)


def test_a_second_write_replaces_the_entry_of_the_same_resource_only() -> None:
    acls = Acls()
    acls.write(entry("Topic:a", "Pub"), entry("Topic:b", "Pub"))
    for code in (CREATE, UPDATE):
        changed = entry("Topic:a", "Sub", decision="Deny", sourceIps=[f"10.0.0.{code % 10}"])
        assert acls.write(changed, code=code).code == SUCCESS
        assert acls.read() == [changed, entry("Topic:b", "Pub")]


def test_policies_decide_at_once_and_deny_beats_allow() -> None:
    acls = Acls()
    assert acls.bob.send("t").code == NO_PERMISSION
    acls.write(entry("Topic:*", "Pub"))
    assert acls.bob.send("t").code == SUCCESS
    acls.write(entry("Topic:t", "Pub", decision="Deny"))
    assert acls.bob.send("t").code == NO_PERMISSION
    acls.delete(resource="Topic:t")
    assert acls.bob.send("t").code == SUCCESS
    acls.delete()
    assert acls.bob.send("t").code == NO_PERMISSION
    assert acls.read() == []


@pytest.mark.parametrize("action", ["Get", "List"])
def test_get_and_list_both_show_a_topic(action: str) -> None:
    acls = Acls()
    assert acls.bob.ask(351, {"topic": "t"}).code == NO_PERMISSION
    acls.write(entry("Topic:t", action))
    assert acls.bob.ask(351, {"topic": "t"}).code == SUCCESS
    acls.write(entry("Topic:*", "Sub"), entry("Topic:t", action, decision="Deny"))
    assert acls.bob.ask(351, {"topic": "t"}).code == NO_PERMISSION


def test_the_list_is_filtered_by_subject_and_resource() -> None:
    acls = Acls()
    acls.write(entry("Topic:a", "Pub"), entry("Group:b", "Sub"))
    acls.write(entry("Topic:c", "Pub"), subject="User:alice")

    def listed(**fields: str) -> dict[str, list[str]]:
        answer = acls.root.ask(LIST, fields)
        assert answer.code == SUCCESS
        found = json.loads(bytes(answer.body) or b"[]")
        return {
            each["subject"]: [entry["resource"] for policy in each["policies"] for entry in policy["entries"]]
            for each in found
        }

    assert listed(subjectFilter="bob") == {"User:bob": ["Topic:a", "Group:b"]}
    assert listed(subjectFilter="bob", resourceFilter="Group") == {"User:bob": ["Group:b"]}
    assert set(listed()) == {"User:alice", "User:bob"}
    assert listed(resourceFilter="nowhere") == {}
    assert acls.root.ask(LIST, {"subjectFilter": "nobody"}).body == b""


def test_permissions_of_rabbitmq_are_shown_and_stay() -> None:
    acls = Acls()
    shown = {each["resource"]: each["actions"] for each in acls.read("User:alice")}
    assert shown["Topic:regexp:^(t|pg)$"] == ["Pub"]
    assert shown["Group:regexp:^(t|g)$"] == ["Sub"]
    refused = acls.root.ask(DELETE, {"subject": "User:alice", "resource": "Topic:regexp:^(t|pg)$"})
    assert refused.code == ResponseCode.INVALID_PARAMETER
    assert "trimq users grant" in refused.remark
    assert {each["resource"] for each in acls.read("User:alice")} == set(shown)


def test_the_policies_are_entries_of_the_one_table() -> None:
    acls = Acls()
    entries = acls.desk.core.broker.acl_entries
    acls.write(entry("Topic:orders", "Pub", decision="Deny", sourceIps=["10.0.0.1"]))
    denied = AclEntry("bob", ResourceKind.TOPIC, "orders", Action.WRITE, is_allowed=False, host="10.0.0.1")
    assert entries.all(SYSTEM) == [denied]
    entries.delete(SYSTEM, denied)
    assert acls.read() == []
    hidden = AclEntry("bob", ResourceKind.TRANSACTION, "tx", None)
    entries.create(SYSTEM, hidden)
    entries.create(SYSTEM, AclEntry("bob", ResourceKind.TOPIC, "t", Action.ALTER_CONFIGS))
    assert acls.read() == [entry("Topic:t", "AlterConfigs")]
    assert acls.delete().code == SUCCESS
    assert entries.all(SYSTEM) == [hidden]


GOOD = entry("Topic:t", "Pub")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"entries": [{**GOOD, "resource": "*"}]}, "The resource * is not supported"),
        ({"entries": [{**GOOD, "resource": "Namespace:n"}]}, "not supported"),
        ({"entries": [{**GOOD, "resource": "Nothing:n"}]}, "The resource is null."),
        ({"entries": [{**GOOD, "resource": "Topic:"}]}, "has no name"),
        ({"entries": [{**GOOD, "resource": "Cluster:other"}]}, "is not this cluster"),
        ({"entries": [{**GOOD, "resource": "Topic:regexp:^a"}]}, "permission of RabbitMQ"),
        ({"entries": [{**GOOD, "actions": []}]}, "The actions is empty."),
        ({"entries": [{**GOOD, "actions": ["Any"]}]}, "The actions can not be Any."),
        ({"entries": [{**GOOD, "actions": ["Fly"]}]}, "The action Fly is unknown"),
        ({"entries": [{**GOOD, "actions": "Pub"}]}, "no list of texts"),
        ({"entries": [{**GOOD, "decision": "Maybe"}]}, "The decision is null or illegal."),
        ({"entries": [{**GOOD, "sourceIps": ["nowhere"]}]}, "no IP address"),
        ({"entries": [GOOD], "policyType": "Default"}, "not supported: write Custom"),
        ({"entries": []}, "The policy entries is empty."),
        ({"entries": [GOOD, {**GOOD, "decision": None}]}, "The decision is null or illegal."),
    ],
)
def test_what_could_not_work_is_refused_and_changes_nothing(given: dict[str, Any], words: str) -> None:
    acls = Acls()
    body = json.dumps({"subject": "User:bob", "policies": [given]}).encode()
    answer = acls.root.ask(CREATE, {"subject": "User:bob"}, body)
    is_genuine = words.startswith("The ") and words.endswith(".")
    assert answer.code == (NO_PERMISSION if is_genuine else ResponseCode.INVALID_PARAMETER)
    assert words in answer.remark
    assert acls.desk.core.broker.acl_entries.all(SYSTEM) == []


def test_subjects_are_users_that_exist() -> None:
    acls = Acls()
    assert acls.write(GOOD, subject="User:nobody").remark == "The subject of User:nobody is not exist."
    assert acls.write(GOOD, subject="Role:bob").code == ResponseCode.INVALID_PARAMETER
    for code in (DELETE, GET):
        assert acls.root.ask(code, {"subject": "User:nobody"}).remark == "The subject is not exist."
    assert acls.delete().remark == "The acl is not exist."


def test_the_right_to_alter_the_broker_is_needed_to_change_and_to_describe_it_to_read() -> None:
    acls = Acls()
    body = json.dumps({"subject": "User:bob", "policies": [{"entries": [GOOD]}]}).encode()
    asked: dict[int, dict[str, str]] = {code: {"subject": "User:bob"} for code in (CREATE, UPDATE, GET, LIST)}

    def outcomes() -> dict[int, int]:
        return {code: acls.bob.ask(code, fields, body).code for code, fields in asked.items()}

    assert set(outcomes().values()) == {NO_PERMISSION}
    acls.write(entry("Cluster:DefaultCluster", "Get"))
    assert outcomes() == {CREATE: NO_PERMISSION, UPDATE: NO_PERMISSION, GET: SUCCESS, LIST: SUCCESS}
    acls.write(entry("Cluster:DefaultCluster", "Update"))
    assert set(outcomes().values()) == {SUCCESS}


def test_an_open_broker_takes_no_policies() -> None:
    desk = Desk()
    body = json.dumps({"subject": "User:bob", "policies": [{"entries": [GOOD]}]}).encode()
    refused = desk.broker.ask(CREATE, {"subject": "User:bob"}, body)
    assert refused.code == ResponseCode.INVALID_PARAMETER
    assert "define a user first" in refused.remark
