"""RocketMQ topics and groups over HTTP: created, listed and deleted beside those of Kafka."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from tools.rocketmq_wire import Wire
from trimq.testing import Broker


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


def ask(broker: Broker, method: str, path: str, body: object = None) -> tuple[int, Any]:
    data = None if body is None else json.dumps(body).encode()
    try:
        with urllib.request.urlopen(urllib.request.Request(f"{broker.http}{path}", data, method=method)) as answer:
            text = answer.read()
            return answer.status, json.loads(text) if text else None
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.status, json.loads(refused.read())


def names(broker: Broker) -> dict[str, str]:
    return {topic["name"]: topic["home"] for topic in ask(broker, "GET", "/api/topics")[1]["topics"]}


def test_a_topic_is_made_listed_described_and_removed(broker: Broker) -> None:
    made = {"name": "steps", "home": "commit-log", "streams": 3, "settings": {"message.type": "FIFO"}}
    status, shown = ask(broker, "POST", "/api/topics", made)
    assert (status, shown["home"], shown["streams"]) == (201, "commit-log", 3)
    assert names(broker)["steps"] == "commit-log"
    with Wire(broker.addresses["rocketmq_broker"]) as wire:
        wire.send("steps", b"one", queue=1)
    status, described = ask(broker, "GET", "/api/topics/steps")
    assert [(at["end"], at["readable_end"]) for at in described["offsets"]] == [(0, 0), (1, 1), (0, 0)]
    assert described["settings"] == {"message.type": "FIFO"}
    assert ask(broker, "DELETE", "/api/topics/steps")[0] == 204
    assert "steps" not in names(broker)
    assert ask(broker, "GET", "/api/topics/steps")[0] == 404


def test_topics_of_both_layouts_are_listed_and_internal_ones_are_not(broker: Broker) -> None:
    assert ask(broker, "POST", "/api/topics", {"name": "ours"})[0] == 201
    assert ask(broker, "POST", "/api/topics", {"name": "theirs", "home": "commit-log"})[0] == 201
    assert names(broker) == {"ours": "partition-log", "theirs": "commit-log"}
    assert ask(broker, "DELETE", "/api/topics/SCHEDULE_TOPIC_XXXX")[0] in (404, 409)


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"streams": 0}, 400),
        ({"settings": {"message.type": "ODD"}}, 400),
        ({"settings": {"retention.ms": "1"}}, 400),
        ({"home": "elsewhere"}, 400),
        ({"name": "with space"}, 400),
    ],
)
def test_an_invalid_topic_is_refused(broker: Broker, change: dict[str, object], status: int) -> None:
    assert ask(broker, "POST", "/api/topics", {"name": "odd", "home": "commit-log", **change})[0] == status


def test_a_group_is_made_and_listed(broker: Broker) -> None:
    assert ask(broker, "POST", "/api/groups", {"name": "pickers", "orderly": True, "retries": 3})[0] == 201
    groups = {group["name"]: group["protocol"] for group in ask(broker, "GET", "/api/groups")[1]["groups"]}
    assert groups["pickers"] == "rocketmq"
    assert ask(broker, "POST", "/api/groups", {"name": "", "orderly": True})[0] == 400
    assert ask(broker, "POST", "/api/groups", {"label": "x"})[0] == 400


def test_where_rocketmq_is_not_served_nothing_of_it_is_made() -> None:
    off = {"rocketmq_listen": "off", "rocketmq_broker_listen": "off", "rocketmq_grpc_listen": "off"}
    with Broker(**off) as broker:
        assert ask(broker, "POST", "/api/topics", {"name": "theirs", "home": "commit-log"})[0] == 409
        assert ask(broker, "POST", "/api/groups", {"name": "pickers"})[0] == 409
