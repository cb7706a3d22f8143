"""RocketMQ groups over HTTP and in the commands, beside Kafka's: raw conversations with a whole broker."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime
from http.client import HTTPConnection
from typing import Any

import pytest

from tools.rocketmq_wire import Wire
from trimq.core.groups.group import NO_MEMBER, CursorChange
from trimq.model import SYSTEM
from trimq.testing import Broker

PATIENCE_S = 20


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


def ask(broker: Broker, method: str, target: str) -> tuple[int, Any]:
    host, _, port = broker.addresses["http"].rpartition(":")
    connection = HTTPConnection(host, int(port), timeout=PATIENCE_S)
    try:
        connection.request(method, target)
        response = connection.getresponse()
        received = response.read()
        is_json = "json" in response.getheader("content-type", "")
        return response.status, json.loads(received) if is_json else received.decode()
    finally:
        connection.close()


def described(broker: Broker, name: str) -> Any:
    status, answer = ask(broker, "GET", f"/api/groups/{name}")
    assert status == 200, answer
    return answer


def trimq(broker: Broker, *words: str) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TRIMQ_")}
    command = [sys.executable, "-m", "trimq.cli", *words, "--http", broker.addresses["http"]]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def connect(broker: Broker) -> Wire:
    return Wire(broker.addresses["rocketmq_broker"])


def send(wire: Wire, topic: str, queue: int, count: int) -> None:
    fields = {"a": "pg", "b": topic, "c": "TBW102", "d": 2, "e": queue, "f": 0, "g": 1, "h": 0, "i": ""}
    for _ in range(count):
        assert wire.ask(310, fields, b"hello")[0]["code"] == 0


def beat(wire: Wire, client: str, group: str, expression: str = "*", topic: str = "orders") -> None:
    consumer = {
        "groupName": group,
        "consumeType": "CONSUME_PASSIVELY",
        "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
        "subscriptionDataSet": [{"topic": topic, "subString": expression, "subVersion": 1}],
    }
    body = json.dumps({"clientID": client, "producerDataSet": [], "consumerDataSet": [consumer]}).encode()
    assert wire.ask(34, {}, body)[0]["code"] == 0


def commit(wire: Wire, group: str, topic: str, queue: int, offset: int) -> None:
    fields = {"consumerGroup": group, "topic": topic, "queueId": queue, "commitOffset": offset}
    assert wire.ask(15, fields)[0]["code"] == 0


def lags(broker: Broker) -> dict[str, float]:
    lines = ask(broker, "GET", "/metrics")[1].splitlines()
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if "group_lag{" in line}


def test_a_group_is_shown_with_members_and_lag(broker: Broker) -> None:
    with connect(broker) as wire:
        send(wire, "orders", 0, 5)
        send(wire, "orders", 1, 2)
        beat(wire, "c1", "billing")
        commit(wire, "billing", "orders", 0, 3)
        commit(wire, "billing", "orders", 1, 0)
        send(wire, "%RETRY%billing", 0, 1)
        (listed,) = ask(broker, "GET", "/api/groups")[1]["groups"]
        assert listed == {"name": "billing", "protocol": "rocketmq", "state": "stable", "members": 1}
        group = described(broker, "billing")
        (member,) = group.pop("members")
        assert member.pop("host").startswith("127.0.0.1:")
        everything = [{"topic": "orders", "expression": "*"}]
        client = {"client_id": "c1", "language": "JAVA", "version": "479"}
        assert member == client | {"subscriptions": everything, "differs": False}
        assert group == {"name": "billing", "protocol": "rocketmq", "state": "stable", "subscriptions": everything} | {
            "cursors": [
                {"topic": "%RETRY%billing", "stream": 0, "offset": 0, "end": 1, "lag": 1},
                {"topic": "orders", "stream": 0, "offset": 3, "end": 5, "lag": 2},
                {"topic": "orders", "stream": 1, "offset": 0, "end": 2, "lag": 2},
            ]
        }
        assert lags(broker) == {
            'trimq_group_lag{group="billing",topic="%RETRY%billing"}': 1,
            'trimq_group_lag{group="billing",topic="orders"}': 4,
        }


def test_a_member_that_subscribes_to_something_else_is_shown_as_such(broker: Broker) -> None:
    with connect(broker) as first, connect(broker) as second, connect(broker) as third:
        send(first, "orders", 0, 1)
        for wire, client, expression in ((first, "c1", "*"), (second, "c2", "*"), (third, "c3", "TagA")):
            beat(wire, client, "billing", expression)
        members = {member["client_id"]: member for member in described(broker, "billing")["members"]}
        assert {client: member["differs"] for client, member in members.items()} == {
            "c1": False,
            "c2": False,
            "c3": True,
        }
        assert members["c3"]["subscriptions"] == [{"topic": "orders", "expression": "TagA"}]
        lines = trimq(broker, "groups", "describe", "billing").splitlines()
        (odd,) = [line for line in lines if "differs" in line]
        assert odd.split(maxsplit=1)[1].startswith("c3 127.0.0.1:")
        assert odd.endswith("JAVA 479, differs from its group, subscribes to: orders TagA")
        assert trimq(broker, "groups", "list").splitlines()[1].split() == ["billing", "rocketmq", "stable", "3"]


def test_without_a_majority_all_subscriptions_differ(broker: Broker) -> None:
    with connect(broker) as first, connect(broker) as second:
        send(first, "orders", 0, 1)
        beat(first, "c1", "billing", "*")
        beat(second, "c2", "billing", "TagA")
        assert [member["differs"] for member in described(broker, "billing")["members"]] == [True, True]


def test_a_group_with_lost_members_is_empty_and_may_be_deleted(broker: Broker) -> None:
    with connect(broker) as wire, connect(broker) as member:
        send(wire, "orders", 0, 2)
        beat(member, "c1", "billing")
        commit(wire, "billing", "orders", 0, 1)
        status, answer = ask(broker, "DELETE", "/api/groups/billing")
        assert (status, answer["error"]) == (409, "GroupNotEmpty")
        fields = {"clientID": "c1", "consumerGroup": "billing"}
        assert member.ask(35, fields)[0]["code"] == 0
        group = described(broker, "billing")
        (committed,) = (at for at in group["cursors"] if at["offset"] == 1)
        assert (group["state"], group["members"], committed["lag"]) == ("empty", [], 1)
        assert ask(broker, "DELETE", "/api/groups/billing")[0] == 204
        assert ask(broker, "GET", "/api/groups/billing")[1]["error"] == "UnknownGroup"
        assert ask(broker, "GET", "/api/groups")[1] == {"groups": []}


def test_groups_of_both_protocols_may_have_one_name(broker: Broker) -> None:
    broker.create_topic("events")

    def change(node: Any) -> None:
        stream = node.core.broker.topics.get(SYSTEM, "events").stream(0).id
        node.core.broker.groups.commit(SYSTEM, "billing", NO_MEMBER, [CursorChange(stream, 0)])

    broker.on_loop(change)
    with connect(broker) as wire:
        send(wire, "orders", 0, 1)
        beat(wire, "c1", "billing")
        commit(wire, "billing", "orders", 0, 0)
        assert [each["protocol"] for each in ask(broker, "GET", "/api/groups")[1]["groups"]] == ["", "rocketmq"]
        # Cursors are those of the name, whatever protocol set them: a group may move between protocols.
        assert {at["topic"] for at in described(broker, "billing")["cursors"]} == {"events", "orders"}
        chosen = described(broker, "billing?protocol=rocketmq")
        assert {at["topic"] for at in chosen["cursors"]} == {"%RETRY%billing", "orders"}
        shown = json.loads(trimq(broker, "groups", "describe", "billing", "--protocol", "rocketmq", "--json"))
        assert shown == chosen
    status, answer = ask(broker, "GET", "/api/groups/none?protocol=rocketmq")
    assert (status, answer["error"]) == (404, "UnknownGroup")


def refused(broker: Broker, *words: str) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TRIMQ_")}
    command = [sys.executable, "-m", "trimq.cli", *words, "--http", broker.addresses["http"]]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, env=environment)
    assert done.returncode in (1, 2)
    return done.stderr


def commit_kafka(broker: Broker, group: str, offset: int) -> None:
    def commit_offset(node: Any) -> None:
        topic = node.core.broker.topics.get(SYSTEM, "orders")
        node.core.broker.groups.commit(SYSTEM, group, NO_MEMBER, [CursorChange(topic.streams[0].id, offset)])

    broker.on_loop(commit_offset)


def test_a_kafka_group_is_moved_and_deleted(broker: Broker) -> None:
    broker.create_topic("orders", 2)
    start_ms = broker.now_ms() // 1000 * 1000 - 10_000
    for number in range(5):
        broker.send("orders", str(number), timestamp_ms=start_ms + number * 1000)
    commit_kafka(broker, "billing", 5)

    def offsets() -> list[int | None]:
        return [at["offset"] for at in described(broker, "billing")["cursors"]]

    lines = trimq(broker, "groups", "move", "billing", "orders", "--to", "earliest").splitlines()
    assert [line.split() for line in lines] == [
        ["topic", "stream", "from", "to"],
        ["orders", "0", "5", "0"],
        ["orders", "1", "-", "0"],
    ]
    assert offsets() == [0, 0]
    trimq(broker, "groups", "move", "billing", "orders", "--to", "latest", "--stream", "0")
    assert offsets() == [5, 0]
    at = datetime.fromtimestamp(start_ms / 1000 + 2.5).isoformat()
    trimq(broker, "groups", "move", "billing", "orders", "--to", at)
    assert offsets() == [3, 0]
    trimq(broker, "groups", "move", "billing", "orders", "--to", "4", "--stream", "0")
    assert offsets() == [4, 0]
    assert "stream 0 has offsets 0 to 5, not 9" in refused(broker, "groups", "move", "billing", "orders", "--to", "9")
    assert "--to: expected earliest" in refused(broker, "groups", "move", "billing", "orders", "--to", "soon")
    wrong_stream = ("--to", "latest", "--stream", "7")
    assert "orders has no stream 7" in refused(broker, "groups", "move", "billing", "orders", *wrong_stream)
    assert "no group none" in refused(broker, "groups", "move", "none", "orders", "--to", "latest")
    assert trimq(broker, "groups", "delete", "billing") == "deleted billing\n"
    assert ask(broker, "GET", "/api/groups/billing")[0] == 404


def test_a_rocketmq_group_is_moved_and_deleted_when_it_has_no_members(broker: Broker) -> None:
    with connect(broker) as wire:
        send(wire, "orders", 0, 5)
        beat(wire, "c1", "billing")
        commit(wire, "billing", "orders", 0, 5)
        move = ("groups", "move", "billing", "orders", "--to", "2", "--stream", "0")
        assert "group billing has members" in refused(broker, *move)
        assert "group billing has members" in refused(broker, "groups", "delete", "billing")
        assert wire.ask(35, {"clientID": "c1", "consumerGroup": "billing"})[0]["code"] == 0
        trimq(broker, *move)
        found, _ = wire.ask(14, {"consumerGroup": "billing", "topic": "orders", "queueId": 0})
        assert found["extFields"]["offset"] == "2"
    trimq(broker, "groups", "delete", "billing", "--protocol", "rocketmq")
    assert ask(broker, "GET", "/api/groups/billing")[0] == 404
