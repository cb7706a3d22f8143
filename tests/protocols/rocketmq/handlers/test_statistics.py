"""Statistics of topics, groups and their progress, as tools request them."""

from __future__ import annotations

from typing import Any

import pytest
from protocols.rocketmq.rocketmq_desk import NOW_MS, Desk

from trimq.protocols.rocketmq.wire.lenient_json import read_json


def desk_with_progress() -> Desk:
    """Desk with five messages in two of three queues; a group has consumed one."""
    desk = Desk()
    desk.broker.ask(17, {"topic": "t", "readQueueNums": 3, "writeQueueNums": 3, "perm": 6})
    for number in range(5):
        desk.broker.send("t", b"x" * 10, queue=number % 2)
        desk.advance(1000)
    desk.broker.ask(200, body={"groupName": "g"})
    desk.broker.ask(15, {"consumerGroup": "g", "topic": "t", "queueId": 0, "commitOffset": 1})
    return desk


def asked(desk: Desk, code: int, **fields: Any) -> Any:
    answer = desk.broker.ask(code, fields)
    assert answer.code == 0, answer.remark
    return read_json(answer.body)


def queue(number: int) -> str:
    return f'{{"brokerName":"broker-a","queueId":{number},"topic":"t"}}'


def test_the_queues_of_a_topic() -> None:
    desk = desk_with_progress()
    found = asked(desk, 202, topic="t")
    assert found["offsetTable"] == {
        queue(0): {"minOffset": 0, "maxOffset": 3, "lastUpdateTimestamp": NOW_MS + 4000},
        queue(1): {"minOffset": 0, "maxOffset": 2, "lastUpdateTimestamp": NOW_MS + 3000},
        queue(2): {"minOffset": 0, "maxOffset": 0, "lastUpdateTimestamp": 0},
    }
    assert found["topicPutTps"] == pytest.approx(5 / 60, abs=0.001)
    assert desk.broker.ask(202, {"topic": "none"}).code == 17


def test_keys_of_tables_are_objects_as_java_clients_need_them() -> None:
    desk = desk_with_progress()
    assert b'{"offsetTable":{{"brokerName":' in desk.broker.ask(202, {"topic": "t"}).body
    assert b'"offsetTable":{{"brokerName":' in desk.broker.ask(208, {"consumerGroup": "g"}).body


@pytest.mark.parametrize("fields", [{}, {"topic": "t"}, {"topicList": "none;t"}])
def test_how_far_a_group_has_read(fields: dict[str, str]) -> None:
    found = asked(desk_with_progress(), 208, consumerGroup="g", **fields)
    rows = found["offsetTable"]
    assert rows[queue(0)] == {"brokerOffset": 3, "consumerOffset": 1, "pullOffset": 1, "lastTimestamp": NOW_MS}
    assert rows[queue(1)] == {"brokerOffset": 2, "consumerOffset": 0, "pullOffset": 0, "lastTimestamp": 0}
    assert len(rows) == 3


def test_a_group_that_reads_nothing_has_no_progress() -> None:
    assert asked(desk_with_progress(), 208, consumerGroup="none") == {"consumeTps": 0.0, "offsetTable": {}}


def test_how_far_behind_all_groups_are() -> None:
    desk = desk_with_progress()
    found = asked(desk, 317, isOrder=False)
    assert (found["brokerAddr"], found["totalDiff"]) == ("127.0.0.1:10911", 4)
    (of_group,) = [row["g"] for row in found["consumeStatsList"] if "g" in row]
    assert of_group[0]["offsetTable"][queue(0)]["consumerOffset"] == 1
    assert asked(desk, 317, isOrder=True)["totalDiff"] == 0


def test_groups_of_a_topic_and_topics_of_a_group() -> None:
    desk = desk_with_progress()
    desk.connect().heartbeat("c", "live", "t")
    assert asked(desk, 300, topic="t") == {"groupList": ["g", "live"]}
    assert asked(desk, 300, topic="none") == {"groupList": []}
    assert asked(desk, 343, group="g") == {"brokerAddr": "127.0.0.1:10911", "topicList": ["t"]}
    assert asked(desk, 345, group="live", topic="t")["subscriptionData"]["subString"] == "*"
    assert asked(desk, 345, group="g", topic="t") == {"group": "g", "topic": "t"}


def test_between_which_times_a_group_reads() -> None:
    desk = desk_with_progress()
    spans = asked(desk, 303, topic="t", group="g")["consumeTimeSpanSet"]
    first = spans[0]
    assert (first["minTimeStamp"], first["maxTimeStamp"]) == (NOW_MS, NOW_MS + 4000)
    assert (first["consumeTimeStamp"], first["delayTime"]) == (NOW_MS, 3000)  # the next message was stored at 2 s
    assert first["minTimeStampStr"] == "2023-11-14#22:13:20:000"
    assert first["messageQueue"]["queueId"] == 0
    assert (spans[2]["minTimeStamp"], spans[2]["maxTimeStamp"], spans[2]["consumeTimeStamp"]) == (-1, -1, -1)
    assert (spans[2]["minTimeStampStr"], spans[2]["delayTime"]) == ("1969-12-31#23:59:59:999", 0)
    desk.broker.ask(15, {"consumerGroup": "g", "topic": "t", "queueId": 0, "commitOffset": 9})
    beyond = asked(desk, 303, topic="t", group="g")["consumeTimeSpanSet"][0]
    assert (beyond["maxTimeStamp"], beyond["consumeTimeStamp"]) == (NOW_MS + 4000, -1)


def test_the_times_of_all_queues_that_can_be_written_are_shown() -> None:
    desk = Desk()
    desk.broker.ask(17, {"topic": "t", "readQueueNums": 2, "writeQueueNums": 5, "perm": 6})
    assert len(asked(desk, 303, topic="t", group="g")["consumeTimeSpanSet"]) == 5


def test_traffic_is_counted() -> None:
    desk = desk_with_progress()
    desk.broker.pull("t")
    sent = asked(desk, 315, statsName="TOPIC_PUT_NUMS", statsKey="t")
    assert (sent["statsMinute"]["sum"], sent["statsDay"]["sum"], sent["statsHour"]["avgpt"]) == (5, 5, 1.0)
    assert asked(desk, 315, statsName="TOPIC_PUT_SIZE", statsKey="t")["statsMinute"]["sum"] == 50
    assert asked(desk, 315, statsName="GROUP_GET_NUMS", statsKey="t@g")["statsMinute"]["sum"] == 3
    assert asked(desk, 315, statsName="BROKER_PUT_NUMS", statsKey="DefaultCluster")["statsDay"]["sum"] == 5
    assert asked(desk, 315, statsName="BROKER_GET_NUMS", statsKey="DefaultCluster")["statsDay"]["sum"] == 3
    assert desk.broker.ask(315, {"statsName": "TOPIC_PUT_NUMS", "statsKey": "none"}).code == 1
    assert desk.broker.ask(315, {"statsName": "BROKER_PUT_NUMS", "statsKey": "none"}).code == 1
    assert desk.broker.ask(315, {"statsName": "NONSENSE", "statsKey": "t"}).code == 1


def test_retries_and_batches_are_counted_too() -> None:
    desk = Desk()
    one = bytes(12) + b"\0\0\0\1x" + b"\0\0"
    batch = ((4 + len(one)).to_bytes(4, "big") + one) * 2
    fields = {"a": "pg", "b": "t", "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 1, "h": 0, "m": True}
    assert desk.broker.ask(320, fields, batch).code == 0
    assert asked(desk, 315, statsName="TOPIC_PUT_NUMS", statsKey="t")["statsMinute"]["sum"] == 2
    assert desk.broker.ask(36, {"offset": 0, "group": "g", "delayLevel": 0}).code == 0
    assert asked(desk, 315, statsName="SNDBCK_PUT_NUMS", statsKey="t@g")["statsMinute"]["sum"] == 1


def test_offsets_of_topics_without_a_subscription_are_not_shown_while_members_are_connected() -> None:
    desk = desk_with_progress()
    desk.broker.heartbeat("c", "g", "other")
    assert asked(desk, 208, consumerGroup="g")["offsetTable"] == {}
