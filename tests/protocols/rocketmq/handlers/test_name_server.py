"""Name server: routes, lists and key-value settings."""

from __future__ import annotations

import json
from typing import Any

import pytest
from protocols.rocketmq.rocketmq_desk import Desk


def test_a_route_names_the_broker_and_its_queues() -> None:
    desk = Desk()
    desk.broker.ask(17, {"topic": "t", "readQueueNums": 6, "writeQueueNums": 4, "perm": 6})
    route = json.loads(desk.names.ask(105, {"topic": "t"}).body)
    assert route["brokerDatas"] == [
        {
            "brokerAddrs": {"0": "127.0.0.1:10911"},
            "brokerName": "broker-a",
            "cluster": "DefaultCluster",
            "enableActingMaster": False,
        }
    ]
    queues = {"brokerName": "broker-a", "perm": 6, "readQueueNums": 6, "topicSysFlag": 0, "writeQueueNums": 4}
    assert route["queueDatas"] == [queues]


@pytest.mark.parametrize(
    ("fields", "version", "is_strict"),
    [({}, 401, True), ({}, 400, False), ({}, 0, False), ({"acceptStandardJsonOnly": True}, 63, True)],
)
def test_old_clients_get_the_form_that_they_were_made_for(fields: Any, version: int, is_strict: bool) -> None:
    body = Desk().names.ask(105, {"topic": "TBW102", **fields}, version=version).body
    assert (b'{"0":' in body, b"{0:" in body) == (is_strict, not is_strict)


@pytest.mark.parametrize("fields", [{"topic": "none"}, {"topic": ""}, {}])
def test_a_topic_that_is_not_there_has_no_route(fields: dict[str, Any]) -> None:
    assert Desk().names.ask(105, fields).code == 17


def test_brokers_and_topics_are_listed() -> None:
    desk = Desk(cluster_name="c1", broker_name="b1")
    assert b'"clusterAddrTable":{"c1":["b1"]}' in desk.names.ask(106).body
    names = json.loads(desk.names.ask(206).body)["topicList"]
    assert {"TBW102", "c1", "b1", "SCHEDULE_TOPIC_XXXX", "c1_REPLY_TOPIC"} <= set(names)
    assert json.loads(desk.names.ask(224, {"cluster": "c1"}).body)["topicList"] == names
    assert json.loads(desk.names.ask(224, {"cluster": "c2"}).body)["topicList"] == []
    system = json.loads(desk.names.ask(304).body)
    assert system == {"brokerAddr": "127.0.0.1:10911", "topicList": ["c1", "b1"]}


def test_small_texts_are_kept() -> None:
    desk = Desk()
    asked = {"namespace": "n", "key": "k"}
    assert desk.names.ask(101, asked).code == 22
    assert desk.names.ask(219, asked).code == 22
    assert desk.names.ask(100, {**asked, "value": "v"}).code == 0
    assert desk.names.ask(101, asked).fields == {"value": "v"}
    desk = desk.restart()
    assert json.loads(desk.names.ask(219, asked).body) == {"table": {"k": "v"}}
    assert desk.names.ask(102, asked).code == 0
    assert desk.names.ask(102, asked).code == 0
    assert desk.names.ask(101, asked).code == 22
    assert json.loads(desk.names.ask(219, asked).body) == {"table": {}}


@pytest.mark.parametrize("code", [100, 101, 102])
def test_a_text_without_a_name_is_refused(code: int) -> None:
    assert Desk().names.ask(code, {"namespace": "n"}).code == 1


def test_an_unserved_code_is_refused() -> None:
    desk = Desk()
    for peer, code in ((desk.names, 11), (desk.names, 9999), (desk.broker, 105), (desk.broker, -1)):
        answer = peer.ask(code)
        assert (answer.code, answer.remark) == (3, f" request type {code} not supported")
    assert desk.connect(desk.doors.vip()).pull("TBW102").code == 3
    assert desk.connect(desk.doors.vip()).send("t").code == 0


def test_a_stray_answer_is_ignored() -> None:
    desk = Desk()
    assert desk.broker.begin(0, flag=1) is None
    assert desk.broker.begin(9999, flag=2) is None
