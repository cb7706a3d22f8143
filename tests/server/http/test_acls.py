"""Access control entries over HTTP, and in exported definitions."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlencode

import pytest

from trimq.testing import Broker

PATIENCE_S = 20
ENTRY = {
    "user": "alice",
    "resource": "topic",
    "action": "read",
    "name": "orders",
    "pattern": "literal",
    "permission": "allow",
    "host": "*",
    "vhost": "/",
}


def with_users(broker: Broker) -> None:
    def prepare(node: Any) -> None:
        access = node.core.broker._access
        access.define_user("root", "root's", is_administrator=True)
        access.define_user("alice", "alice's")

    broker.on_loop(prepare)


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        broker.create_topic("orders")
        with_users(broker)
        yield broker


def ask(broker: Broker, method: str, target: str, body: object = None, user: str = "root") -> tuple[int, Any]:
    host, _, port = broker.addresses["http"].rpartition(":")
    connection = HTTPConnection(host, int(port), timeout=PATIENCE_S)
    login = base64.b64encode(f"{user}:{user}'s".encode()).decode()
    try:
        data = None if body is None else json.dumps(body)
        connection.request(method, target, data, {"authorization": f"Basic {login}"} if user else {})
        response = connection.getresponse()
        received = response.read()
        return response.status, json.loads(received) if received else None
    finally:
        connection.close()


def path(**fields: str) -> str:
    return f"/api/acls?{urlencode({**ENTRY, **fields})}"


def test_an_entry_is_added_listed_and_deleted_and_holds_at_once(broker: Broker) -> None:
    assert ask(broker, "GET", "/api/topics/orders", user="alice")[0] == 403
    assert ask(broker, "PUT", path())[0] == 204
    assert ask(broker, "PUT", path())[0] == 204
    assert ask(broker, "GET", "/api/acls") == (200, {"acls": [ENTRY]})
    assert ask(broker, "GET", "/api/topics/orders", user="alice")[0] == 200
    assert ask(broker, "DELETE", path())[0] == 204
    assert ask(broker, "DELETE", path())[0] == 204
    assert ask(broker, "GET", "/api/acls") == (200, {"acls": []})
    assert ask(broker, "GET", "/api/topics/orders", user="alice")[0] == 403


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"resource": "queue"}, "resource 'queue' is none of topic, group"),
        ({"action": "administer"}, "action 'administer' is none of all, read, write"),
        ({"permission": "maybe"}, "permission"),
        ({"name": ""}, "the name is empty"),
        ({"host": "example.com"}, "no IP address"),
        ({"more": "x"}, "more"),
    ],
)
def test_an_entry_that_could_not_work_is_refused(broker: Broker, fields: dict[str, str], sentence: str) -> None:
    status, answer = ask(broker, "PUT", path(**fields))
    assert status == 400
    assert sentence in answer["message"]


def test_only_who_may_alter_the_broker_changes_entries(broker: Broker) -> None:
    for method in ("PUT", "DELETE"):
        assert ask(broker, method, path(), user="alice")[0] == 403
    assert ask(broker, "GET", "/api/acls", user="alice")[0] == 403
    assert ask(broker, "PUT", path(resource="broker", name="", action="alter"))[0] == 204
    assert ask(broker, "PUT", path(), user="alice")[0] == 204
    assert len(ask(broker, "GET", "/api/acls", user="alice")[1]["acls"]) == 2
    assert ask(broker, "PUT", "/api/users/eve", {"password": "e"}, user="alice")[0] == 403


def test_entries_are_exported_and_imported_with_the_users(broker: Broker) -> None:
    for fields in ({}, {"permission": "deny", "pattern": "prefixed", "host": "10.0.0.0/8", "user": "*"}):
        assert ask(broker, "PUT", path(**fields))[0] == 204
    exported = ask(broker, "GET", "/api/definitions")[1]
    assert [entry["permission"] for entry in exported["acls"]] == ["allow", "deny"] or len(exported["acls"]) == 2
    with Broker() as other:
        assert ask(other, "POST", "/api/definitions", exported, user="")[0] == 204
        assert ask(other, "GET", "/api/acls") == ask(broker, "GET", "/api/acls")


def test_without_users_an_entry_would_protect_nothing_and_is_refused() -> None:
    with Broker() as broker:
        status, answer = ask(broker, "PUT", path(), user="")
        assert (status, answer["error"]) == (400, "InvalidSetting")
        assert "define a user first" in answer["message"]


def test_where_logins_are_required_nothing_is_answered_without_one_and_the_last_user_stays() -> None:
    with Broker(security_mode="required") as broker:
        assert ask(broker, "PUT", "/api/users/eve", {"password": "e", "administrator": True}, user="")[0] == 401
        assert ask(broker, "GET", "/api/topics", user="guest")[0] == 401
        broker.on_loop(lambda node: node.core.broker._access.define_user("root", "root's", is_administrator=True))
        status, answer = ask(broker, "DELETE", "/api/users/root")
        assert (status, answer["error"]) == (400, "InvalidSetting")
        assert ask(broker, "PUT", "/api/users/root", {"administrator": False})[0] == 400
        assert ask(broker, "PUT", "/api/users/alice", {"password": "alice's"})[0] == 204
        assert ask(broker, "GET", "/api/topics", user="alice")[0] == 200
        assert "guest" not in json.dumps(ask(broker, "GET", "/api/users")[1])
