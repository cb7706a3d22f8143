"""Rights over HTTP: the virtual host that a request names gives no right on things that belong to none."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from http.client import HTTPConnection
from typing import Any

import pytest

from trimq.core.commit_log.groups import CommitLogGroup
from trimq.core.groups.group import NO_MEMBER, CursorChange
from trimq.core.security.access import Right
from trimq.model import SYSTEM
from trimq.testing import Broker

PATIENCE_S = 20


@pytest.fixture
def broker() -> Iterator[Broker]:
    """A broker with a group `billing`, and a user with all rights in the virtual host `shop` only."""
    with Broker() as broker:
        broker.create_topic("orders")
        broker.send("orders", b"1")

        def prepare(node: Any) -> None:
            api = node.core.broker
            stream = api.topics.get(SYSTEM, "orders").stream(0)
            api.groups.commit(SYSTEM, "billing", NO_MEMBER, [CursorChange(stream.id, 1)])
            node.core.commit_log_service.commit_log.groups.define(SYSTEM, CommitLogGroup("rmq-billing"))
            api.namespaces.define(SYSTEM, "shop")
            api._access.define_user("root", "secret", is_administrator=True)
            api._access.define_user("bob", "his")
            api._access.grant(Right("bob", "shop", ".*", ".*", ".*"))

        broker.on_loop(prepare)
        yield broker


def ask(broker: Broker, method: str, target: str, body: object = None) -> tuple[int, Any]:
    host, _, port = broker.addresses["http"].rpartition(":")
    connection = HTTPConnection(host, int(port), timeout=PATIENCE_S)
    login = base64.b64encode(b"bob:his").decode()
    try:
        data = None if body is None else json.dumps(body)
        connection.request(method, target, data, {"authorization": f"Basic {login}"})
        response = connection.getresponse()
        received = response.read()
        return response.status, json.loads(received) if received else None
    finally:
        connection.close()


@pytest.mark.parametrize("query", ["", "?namespace=shop", "?namespace=shop&protocol=rocketmq", "?namespace=%2F"])
@pytest.mark.parametrize("method", ["GET", "DELETE"])
def test_a_group_belongs_to_no_virtual_host(broker: Broker, method: str, query: str) -> None:
    name = "rmq-billing" if "rocketmq" in query else "billing"
    assert ask(broker, method, f"/api/groups/{name}{query}")[0] == 403


def test_groups_are_not_listed_by_a_right_in_a_virtual_host(broker: Broker) -> None:
    assert ask(broker, "GET", "/api/groups?namespace=shop") == (200, {"groups": []})


def test_a_group_is_not_created_by_a_right_in_a_virtual_host(broker: Broker) -> None:
    assert ask(broker, "POST", "/api/groups?namespace=shop", {"name": "new"})[0] == 403


def test_offsets_are_not_moved_by_a_right_in_a_virtual_host(broker: Broker) -> None:
    assert ask(broker, "PUT", "/api/groups/billing/cursors?namespace=shop", {"cursors": []})[0] == 403
