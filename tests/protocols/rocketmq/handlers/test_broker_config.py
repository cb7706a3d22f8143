"""Broker settings that may be changed at run time: each change takes effect, and code 26 shows it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from protocols.rocketmq.rocketmq_desk import NOW_MS, Desk, bodies_of

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


def shown(desk: Desk) -> dict[str, str]:
    lines = desk.broker.ask(26).body.decode().splitlines()
    return dict(line.split("=", 1) for line in lines)  # type: ignore[misc]


def change(desk: Desk, **values: object) -> None:
    text = "".join(f"{name}={value}\n" for name, value in values.items())
    assert desk.broker.ask(25, body=text.encode()).code == 0
    assert {name: shown(desk)[name] for name in values} == {name: str(value) for name, value in values.items()}


def test_settings_are_shown_with_apache_rocketmqs_names() -> None:
    desk = Desk(default_queues=5, retention_ms=7 * HOUR_MS, auto_create_topics=False)
    found = shown(desk)
    assert found["defaultTopicQueueNums"] == "5"
    assert found["fileReservedTime"] == "7"
    assert found["autoCreateTopicEnable"] == "false"
    assert found["flushDiskType"] == "SYNC_FLUSH"
    assert found["listenPort"] == "10911"
    assert json.loads(desk.broker.ask(26).fields["version"]) == {
        "counter": 0,
        "stateVersion": 0,
        "timestamp": NOW_MS,
    }


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (b"longPollingEnable=true\nbrokerId=0\n", 0),
        (b"longPollingEnable=false\n", 29),
        (b"brokerPermission=4\n", 29),
        (b"flushDiskType=ASYNC_FLUSH\n", 29),
        (b"unknown=1\n", 29),
        (b"brokerConfigPath=/x\n", 16),
        (b"autoCreateTopicEnable=maybe\n", 29),
        (b"fileReservedTime=0\n", 29),
        (b"fileReservedTime=%d\n" % 2**62, 29),
        (b"deleteWhen=25\n", 29),
        (b"maxMessageSize=-1\n", 29),
        (b"maxMessageSize=%d\n" % 2**31, 29),
        (b"transactionCheckMax=0\n", 29),
        (b"transactionTimeOut=soon\n", 29),
        (b"", 0),
    ],
)
def test_an_immutable_setting_is_refused(text: bytes, code: int) -> None:
    assert Desk().broker.ask(25, body=text).code == code


def test_of_several_changes_all_are_made_or_none() -> None:
    desk = Desk()
    assert desk.broker.ask(25, body=b"maxMessageSize=10\nunknown=1\n").code == 29
    assert shown(desk)["maxMessageSize"] == "4194304"
    change(desk, maxMessageSize=10, autoCreateTopicEnable="false")
    desk.advance(5)
    change(desk, maxMessageSize=11)
    version = json.loads(desk.broker.ask(26).fields["version"])
    assert (version["counter"], version["timestamp"]) == (2, NOW_MS + 5)


def test_topics_are_made_by_sending_or_not() -> None:
    desk = Desk()
    change(desk, autoCreateTopicEnable="false")
    assert desk.broker.send("new").code == 17
    change(desk, autoCreateTopicEnable="true")
    assert desk.broker.send("new").code == 0


@pytest.mark.parametrize("kind", ["one", "batch"])
def test_a_message_may_be_so_long_on_connections_that_are_open_already(kind: str) -> None:
    desk = Desk()
    desk.broker.send("t", properties="UNIQ_KEY\x01K\x02")
    fields: dict[str, Any] = {"m": True} if kind == "batch" else {}

    def send(size: int) -> int:
        body = bytes(size)
        if kind == "batch":
            head = (4 + 4 + 4 + 4 + 4 + size + 2).to_bytes(4, "big") + bytes(12)
            body = head + size.to_bytes(4, "big") + body + bytes(2)
        return desk.broker.send("t", body, properties="UNIQ_KEY\x01K\x02", **fields).code

    assert send(200) == 0
    change(desk, maxMessageSize=100)
    assert send(200) == 13
    assert send(10) == 0
    change(desk, maxMessageSize=1000)
    assert send(200) == 0


def test_files_are_kept_for_so_long_and_go_in_these_hours() -> None:
    desk = Desk(commit_file_bytes=1 << 16)
    for _ in range(9):
        desk.broker.send("t", bytes(20_000))
    hour = NOW_MS // HOUR_MS % 24
    change(desk, fileReservedTime=2, deleteWhen=f"{(hour + 5) % 24:02}")
    assert desk.broker.ask(31, {"topic": "t", "queueId": 0}).fields["offset"] == "0"
    desk.advance(4 * HOUR_MS)
    assert desk.broker.ask(31, {"topic": "t", "queueId": 0}).fields["offset"] == "0"
    desk.advance(HOUR_MS)
    assert int(desk.broker.ask(31, {"topic": "t", "queueId": 0}).fields["offset"]) > 0


def test_producers_are_asked_by_the_new_patience() -> None:
    desk = Desk()
    change(desk, transactionTimeOut=1000, transactionCheckInterval=1000, transactionCheckMax=1)
    producer = desk.connect()
    producer.ask(34, body={"clientID": "p", "producerDataSet": [{"groupName": "pg"}]})
    producer.send("t", b"half", properties="UNIQ_KEY\x01H\x02TRAN_MSG\x01true\x02PGROUP\x01pg\x02")
    desk.advance(1000)
    assert [command.code for command in producer.way.sent] == [39]
    desk.advance(2000)
    assert bodies_of(desk.broker.pull("TRANS_CHECK_MAX_TIME_TOPIC")) == [b"half"]


def test_the_next_look_at_transactions_comes_by_the_new_interval() -> None:
    desk = Desk()
    producer = desk.connect()
    producer.ask(34, body={"clientID": "p", "producerDataSet": [{"groupName": "pg"}]})
    producer.send("t", b"half", properties="UNIQ_KEY\x01H\x02TRAN_MSG\x01true\x02PGROUP\x01pg\x02")
    change(desk, transactionTimeOut=100, transactionCheckInterval=100)
    desk.advance(100)
    assert [command.code for command in producer.way.sent] == [39]


def test_a_change_lasts_until_the_broker_ends() -> None:
    desk = Desk()
    change(desk, maxMessageSize=100)
    assert shown(desk.restart())["maxMessageSize"] == "4194304"
