"""RocketMQ groups over HTTP and in the commands, beside Kafka's: raw conversations with a whole broker."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
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
        assert [at["topic"] for at in described(broker, "billing")["cursors"]] == ["events"]
        chosen = described(broker, "billing?protocol=rocketmq")
        assert {at["topic"] for at in chosen["cursors"]} == {"%RETRY%billing", "orders"}
        shown = json.loads(trimq(broker, "groups", "describe", "billing", "--protocol", "rocketmq", "--json"))
        assert shown == chosen
    status, answer = ask(broker, "GET", "/api/groups/none?protocol=rocketmq")
    assert (status, answer["error"]) == (404, "UnknownGroup")
