"""Administration over HTTP, and the commands that use it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from errno import EMFILE
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tools.broker import running
from trimq.core.groups.group import NO_MEMBER, CursorChange
from trimq.errors import ReadOnly
from trimq.model import SYSTEM
from trimq.server.http.topics import TopicsApi
from trimq.testing import Broker, BrokerFailed

PATIENCE_S = 20


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


def ask(broker: Broker, method: str, target: str, body: object = None) -> tuple[int, Any]:
    host, _, port = broker.addresses["http"].rpartition(":")
    connection = HTTPConnection(host, int(port), timeout=PATIENCE_S)
    try:
        sent = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        connection.request(method, target, sent)
        response = connection.getresponse()
        received = response.read()
        return response.status, json.loads(received) if received else None
    finally:
        connection.close()


# --- topics -----------------------------------------------------------------------------------------------------------


def test_a_topic_is_created_described_listed_and_deleted(broker: Broker) -> None:
    asked = {"name": "orders", "streams": 2, "settings": {"retention_ms": "60000"}}
    status, created = ask(broker, "POST", "/api/topics", asked)
    assert status == 201
    assert created == asked | {"namespace": "", "home": "partition-log", "id": created["id"]}
    broker.send("orders", "one", partition=1)
    status, described = ask(broker, "GET", "/api/topics/orders")
    assert status == 200
    ends = [{key: row[key] for key in row if key != "bytes"} for row in described.pop("offsets")]
    assert described == created
    empty = {"start": 0, "end": 0, "durable_end": 0, "readable_end": 0}
    assert ends == [{"stream": 0, **empty}, {"stream": 1, "start": 0, "end": 1, "durable_end": 1, "readable_end": 1}]
    assert ask(broker, "GET", "/api/topics") == (200, {"topics": [created]})
    assert ask(broker, "DELETE", "/api/topics/orders") == (204, None)
    assert ask(broker, "GET", "/api/topics") == (200, {"topics": []})
    assert ask(broker, "GET", "/api/topics/orders")[0] == 404


def test_a_change_of_settings_leaves_the_others_and_outlives_a_power_cut(broker: Broker) -> None:
    ask(broker, "POST", "/api/topics", {"name": "orders", "settings": {"retention_ms": "60000", "segment_ms": "5000"}})
    change = {"settings": {"writable": "false", "segment_ms": None}}
    kept = {"retention_ms": "60000", "writable": "false"}
    status, changed = ask(broker, "PATCH", "/api/topics/orders", change)
    assert (status, changed["settings"]) == (200, kept)
    broker.crash()
    broker.restart()
    assert ask(broker, "GET", "/api/topics/orders")[1]["settings"] == kept
    with pytest.raises(ReadOnly):
        broker.send("orders", "late")


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"settings": {"writable": "perhaps"}}, "InvalidSetting"),
        ({"settings": {"colour": "red"}}, "InvalidSetting"),
        ({"settings": {"writable": False}}, "BadRequest"),
        ({"streams": 5}, "BadRequest"),
    ],
)
def test_a_change_that_cannot_be_changes_nothing(broker: Broker, change: object, error: str) -> None:
    ask(broker, "POST", "/api/topics", {"name": "orders"})
    status, answer = ask(broker, "PATCH", "/api/topics/orders", change)
    assert (status, answer["error"]) == (400, error)
    assert ask(broker, "GET", "/api/topics/orders")[1]["settings"] == {}


def test_a_bug_in_the_making_of_a_large_topic_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker().start()

    def fail(*_: object) -> None:
        raise OSError(EMFILE, "planted")

    monkeypatch.setattr(TopicsApi, "_create", fail)
    status, answer = ask(broker, "POST", "/api/topics", {"name": "large", "streams": 100})
    assert (status, answer["error"]) == (500, "InternalError")
    with pytest.raises(BrokerFailed, match="planted"):
        broker.close()


def test_a_created_topic_outlives_a_power_cut(broker: Broker) -> None:
    assert ask(broker, "POST", "/api/topics", {"name": "orders"})[0] == 201
    broker.crash()
    broker.restart()
    assert ask(broker, "GET", "/api/topics/orders")[0] == 200
    assert ask(broker, "DELETE", "/api/topics/orders")[0] == 204
    broker.crash()
    broker.restart()
    assert ask(broker, "GET", "/api/topics/orders")[0] == 404


@pytest.mark.parametrize(
    ("asked", "status", "error"),
    [
        (b"", 400, "BadRequest"),
        (b"{", 400, "BadRequest"),
        (b"[]", 400, "BadRequest"),
        (b'"\xff"', 400, "BadRequest"),
        (b'{"name": "a\xff"}', 400, "BadRequest"),
        ({}, 400, "BadRequest"),
        ({"name": 7}, 400, "BadRequest"),
        ({"name": "a", "streams": "two"}, 400, "BadRequest"),
        ({"name": "a", "streams": 1.5}, 400, "BadRequest"),
        ({"name": "a", "colour": "red"}, 400, "BadRequest"),
        ({"name": "a", "settings": {"retention_ms": 7}}, 400, "BadRequest"),
        ({"name": ""}, 400, "InvalidName"),
        ({"name": ".."}, 400, "InvalidName"),
        ({"name": "a/b"}, 400, "InvalidName"),
        ({"name": "a\x00b"}, 400, "InvalidName"),
        ({"name": "ü"}, 400, "InvalidName"),
        ({"name": "x" * 250}, 400, "NameTooLong"),
        ({"name": "a", "streams": 0}, 400, "InvalidCount"),
        ({"name": "a", "streams": -1}, 400, "InvalidCount"),
        ({"name": "a", "streams": 10**30}, 400, "InvalidCount"),
        ({"name": "a", "settings": {"colour": "red"}}, 400, "InvalidSetting"),
        ({"name": "a", "settings": {"retention_ms": "soon"}}, 400, "InvalidSetting"),
        ({"name": "taken"}, 409, "TopicExists"),
    ],
)
def test_a_topic_that_cannot_be_is_refused_with_a_sentence(
    broker: Broker, asked: object, status: int, error: str
) -> None:
    broker.create_topic("taken")
    found, answer = ask(broker, "POST", "/api/topics", asked)
    assert (found, answer["error"]) == (status, error)
    assert answer["message"]
    assert len(ask(broker, "GET", "/api/topics")[1]["topics"]) == 1


ODD_NAMES = ["none", "..", "%2e%2e", "a%2Fb", "%2e%2e%2f%2e%2e%2fetc", "%00", "%ff", "%zz", "%E2%82%AC"]


@pytest.mark.parametrize("name", ODD_NAMES)
def test_a_name_that_no_topic_has_is_not_found(broker: Broker, name: str) -> None:
    for method in ("GET", "DELETE"):
        status, answer = ask(broker, method, f"/api/topics/{name}")
        assert (status, answer["error"]) == (404, "UnknownTopic")


def test_a_name_may_be_percent_encoded(broker: Broker) -> None:
    broker.create_topic("my.topic_1-a")
    for name in ("my.topic_1-a", "my%2Etopic%5f1%2da", "%6d%79.topic_1-a"):
        assert ask(broker, "GET", f"/api/topics/{name}")[1]["name"] == "my.topic_1-a"


def test_names_live_in_namespaces(broker: Broker) -> None:
    broker.create_topic("orders")
    assert ask(broker, "GET", "/api/topics?namespace=shop") == (200, {"topics": []})
    status, answer = ask(broker, "GET", "/api/topics/orders?namespace=shop")
    assert (status, answer["message"]) == (404, "there is no topic shop/orders")
    # partition logs have no namespaces: a topic in one is refused
    status, answer = ask(broker, "POST", "/api/topics", {"name": "orders", "namespace": "shop"})
    assert (status, answer["error"]) == (400, "InvalidName")


# --- groups -----------------------------------------------------------------------------------------------------------


def commit(broker: Broker, group: str, topic: str, stream: int, offset: int) -> None:
    def change(node: Any) -> None:
        found = node.core.broker.topics.get(SYSTEM, topic)
        node.core.broker.groups.commit(SYSTEM, group, NO_MEMBER, [CursorChange(found.stream(stream).id, offset)])

    broker.on_loop(change)


def test_a_group_is_described_with_its_cursors_and_its_lag(broker: Broker) -> None:
    broker.create_topic("orders", partitions=2)
    for number in range(5):
        broker.send("orders", str(number))
    commit(broker, "billing/eu", "orders", 0, 3)
    commit(broker, "billing/eu", "orders", 1, 0)
    status, described = ask(broker, "GET", f"/api/groups/{quote('billing/eu', safe='')}")
    assert status == 200
    assert (described["name"], described["state"], described["members"]) == ("billing/eu", "empty", [])
    assert described["cursors"] == [
        {"topic": "orders", "stream": 0, "offset": 3, "end": 5, "lag": 2},
        {"topic": "orders", "stream": 1, "offset": 0, "end": 0, "lag": 0},
    ]
    _, listed = ask(broker, "GET", "/api/groups")
    assert [(group["name"], group["members"]) for group in listed["groups"]] == [("billing/eu", 0)]


def test_an_unknown_group_is_not_found(broker: Broker) -> None:
    for name in ("none", "%2e%2e"):
        status, answer = ask(broker, "GET", f"/api/groups/{name}")
        assert (status, answer["error"]) == (404, "UnknownGroup")


def test_a_group_is_described_without_a_topic_that_is_being_deleted(broker: Broker) -> None:
    broker.create_topic("going")
    broker.create_topic("staying")
    commit(broker, "billing", "going", 0, 0)
    commit(broker, "billing", "staying", 0, 0)

    def delete_and_describe(node: Any) -> list[str]:
        from trimq.core.api.records import RecordsApi
        from trimq.server.http.groups import GroupsApi
        from trimq.server.http.topics import TopicsApi

        core = node.core.broker
        core.topics.delete(SYSTEM, core.topics.get(SYSTEM, "going"))
        groups = GroupsApi(core.groups, RecordsApi(core, None))
        answer = TopicsApi(core, [groups]).answer(SYSTEM, "GET", "/api/groups/billing", {}, b"")
        return [row["topic"] for row in json.loads(answer.body)["cursors"]]

    assert broker.on_loop(delete_and_describe) == ["staying"]


# --- the commands -----------------------------------------------------------------------------------------------------


def trimq(addresses: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TRIMQ_")}
    return subprocess.run(
        [sys.executable, "-m", "trimq.cli", *words, "--http", addresses["http"]],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        env=environment,
    )


def test_the_commands_work_with_a_broker(tmp_path: Path) -> None:
    with running(tmp_path) as addresses:
        done = trimq(addresses, "topics", "create", "orders", "--streams", "3", "--setting", "retention_ms=60000")
        assert (done.returncode, done.stdout, done.stderr) == (0, "created orders with 3 streams\n", "")
        listed = trimq(addresses, "topics", "list", "--json")
        assert [topic["name"] for topic in json.loads(listed.stdout)["topics"]] == ["orders"]
        described = trimq(addresses, "topics", "describe", "orders")
        assert described.returncode == 0
        assert "retention_ms" in described.stdout
        again = trimq(addresses, "topics", "create", "orders")
        assert (again.returncode, again.stderr) == (1, "trimq: topic orders already exists\n")
        assert trimq(addresses, "topics", "delete", "orders").returncode == 0
        gone = trimq(addresses, "topics", "describe", "orders")
        assert (gone.returncode, gone.stderr) == (1, "trimq: there is no topic orders\n")
        assert trimq(addresses, "groups", "list").returncode == 0
        group = trimq(addresses, "groups", "describe", "a/b")
        assert group.returncode == 1
        assert group.stderr.startswith("trimq: ")
        assert group.stderr.count("\n") == 1
