"""Administration of the broker itself: its state, and deletion of expired files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from protocols.rocketmq.rocketmq_desk import NOW_MS, Desk

HOUR_MS = 3_600_000
SEND = {"a": "pg", "b": "t", "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 77, "h": 0, "i": ""}


def runtime(desk: Desk) -> dict[str, str]:
    found: dict[str, str] = json.loads(desk.broker.ask(28).body)["table"]
    return found


def test_how_it_does() -> None:
    desk = Desk()
    empty = runtime(desk)
    assert (empty["msgPutTotalTodayNow"], empty["earliestMessageTimeStamp"]) == ("0", "-1")
    for _ in range(3):
        desk.broker.send("t", b"x" * 100)
    desk.broker.send("t", b"later", properties="DELAY\x015\x02")
    desk.broker.pull("t")
    desk.advance(5000)
    found = runtime(desk)
    assert (found["msgPutTotalTodayNow"], found["msgGetTotalTodayNow"]) == ("4", "3")
    assert (found["putTps"], found["runtime"]) == ("0.400 0.067 0.007", "[ 0 days, 0 hours, 0 minutes, 5 seconds ]")
    assert (found["earliestMessageTimeStamp"], found["bootTimestamp"]) == (str(NOW_MS), str(NOW_MS))
    assert (found["timerCongestNum"], found["brokerVersionDesc"]) == ("1", "V5_5_0")
    assert int(found["commitLogMaxOffset"]) > 0
    assert 0 <= float(found["commitLogDiskRatio"]) <= 1
    desk.advance(48 * HOUR_MS)
    later = runtime(desk)
    assert (later["msgPutTotalTodayMorning"], later["msgPutTotalYesterdayMorning"]) == ("4", "4")


# Read by rocketmq-exporter and rocketmq-dashboard besides those of the golden answer; not among its keys.
_NOT_IN_GOLDEN = {"brokerVersion", "commitLogDirCapacity", "dispatchMaxBuffer"}


def test_every_runtime_key_of_a_genuine_broker_is_there() -> None:
    golden = Path(__file__).parents[3] / "golden" / "rocketmq" / "rocketmq-5.5.0.txt"
    (line,) = [line for line in golden.read_text().splitlines() if line.startswith("admin.runtime_keys: ")]
    assert runtime(Desk()).keys() == {*json.loads(line.partition(": ")[2])} | _NOT_IN_GOLDEN


def test_requests_that_found_messages_are_counted_apart_from_those_that_did_not() -> None:
    desk = Desk()
    for _ in range(3):
        desk.broker.send("t", b"x")
    desk.broker.pull("t")
    desk.broker.pull("t", 3)
    desk.broker.pull("t", 3)
    pop = {"consumerGroup": "p", "topic": "t", "queueId": 0, "maxMsgNums": 2, "invisibleTime": 9000, "pollTime": 0}
    desk.broker.ask(200050, {**pop, "bornTime": 1, "initMode": 0})
    found = runtime(desk)
    assert (found["getFoundTps"], found["getMissTps"]) == ("0.200 0.033 0.003", "0.200 0.033 0.003")
    assert (found["getTotalTps"], found["getTransferredTps"]) == ("0.400 0.067 0.007", "0.500 0.083 0.008")


def test_the_time_of_a_send_is_measured_until_it_is_durable() -> None:
    desk = Desk()
    assert runtime(desk)["putMessageDistributeTime"] == "null"
    desk.broker.send("t", b"creates the topic")
    for took_ms in (0, 30):
        reply = desk.broker.begin(310, SEND, b"x")
        assert reply is not None
        until_ms = desk.liveness.now_ms() + took_ms
        while desk.liveness.step(until_ms):
            desk.runner.end_pass()  # the disk does not sync
        assert desk.take(reply).code == 0
    assert runtime(desk)["putMessageEntireTimeMax"] == "30"
    assert runtime(desk)["putMessageDistributeTime"] == "null"  # of the last full minute
    desk.let_pass(60_000)
    found = runtime(desk)
    assert found["putMessageDistributeTime"].startswith("[<=0ms]:2 [0~10ms]:0 [10~50ms]:1 [50~100ms]:0 ")
    assert (found["putLatency99"], found["putLatency999"]) == ("30.00", "30.00")
    desk.let_pass(120_000)
    assert runtime(desk)["putMessageDistributeTime"].startswith("[<=0ms]:0 [0~10ms]:0 [10~50ms]:0 ")


def test_refused_sends_are_counted() -> None:
    desk = Desk()
    desk.broker.send("t", b"x")
    desk.fail_writes()
    assert desk.broker.ask(310, SEND, b"x").code != 0
    assert int(runtime(desk)["putMessageFailedTimes"]) == 1


def test_timers_are_counted_as_they_come_and_as_they_are_due() -> None:
    desk = Desk()
    desk.broker.send("t", b"x")
    desk.broker.send("t", b"later", properties="TIMER_DELAY_SEC\x0120\x02")
    found = runtime(desk)
    assert (found["timerEnqueueTps"], found["timerDequeueTps"]) == ("0.1", "0.0")
    desk.advance(20_000)
    found = runtime(desk)
    assert (found["timerEnqueueTps"], found["timerDequeueTps"]) == ("0.0", "0.1")


@pytest.mark.parametrize("code", [306, 329])
def test_files_past_their_retention_are_deleted_on_request(code: int) -> None:
    desk = Desk(commit_file_bytes=1 << 16, retention_ms=HOUR_MS)
    for _ in range(9):
        desk.broker.send("t", bytes(20_000))
    assert desk.broker.ask(code).code == 0
    assert runtime(desk)["commitLogMinOffset"] == "0"
    desk.restart()
    desk = Desk(desk.files, NOW_MS + 2 * HOUR_MS, **desk.given)
    assert runtime(desk)["commitLogMinOffset"] == "0"
    assert desk.broker.ask(code).code == 0
    assert int(runtime(desk)["commitLogMinOffset"]) > 0


def test_cleaning_unused_topics_keeps_existing_ones() -> None:
    desk = Desk()
    desk.broker.send("t")
    assert desk.broker.ask(316).code == 0
    assert desk.broker.pull("t").code == 0


# -- topics


def test_several_topics_are_made_at_once() -> None:
    desk = Desk()
    rows: list[dict[str, Any]] = [
        {
            "topicName": "one",
            "readQueueNums": 2,
            "writeQueueNums": 2,
            "perm": 6,
            "attributes": {"+message.type": "FIFO"},
        },
        {"topicName": "two", "readQueueNums": 1, "writeQueueNums": 1, "perm": 4},
    ]
    assert desk.broker.ask(18, body={"topicConfigList": rows}).code == 0
    one = json.loads(desk.broker.ask(351, {"topic": "one"}).body)
    assert (one["writeQueueNums"], one["attributes"]) == (2, {"message.type": "FIFO"})
    assert json.loads(desk.broker.ask(351, {"topic": "two"}).body)["perm"] == 4
    assert desk.broker.ask(18, body={"topicConfigList": [{"topicName": "three"}]}).code == 29


def test_topics_of_the_broker_itself_are_left_alone() -> None:
    desk = Desk()
    names = json.loads(desk.broker.ask(305).body)["topicList"]
    assert {"TBW102", "SCHEDULE_TOPIC_XXXX", "DefaultCluster", "broker-a"} <= set(names)
    for name in names:
        assert desk.broker.ask(17, {"topic": name, "readQueueNums": 1, "writeQueueNums": 1, "perm": 6}).code == 29
        assert desk.broker.ask(215, {"topic": name}).code == 29


# -- the entries of a queue


def test_the_entries_of_a_queue_are_shown() -> None:
    desk = Desk()
    for tag in ("A", "B", "A"):
        desk.broker.send("t", properties=f"TAGS\x01{tag}\x02")
    asked = {"topic": "t", "queueId": 0, "index": 1, "count": 5}
    shown = json.loads(desk.broker.ask(321, asked).body)
    assert (shown["minQueueIndex"], shown["maxQueueIndex"]) == (0, 3)
    assert [(row["tagsCode"], row["eval"]) for row in shown["queueData"]] == [(ord("B"), False), (ord("A"), False)]
    nobody = json.loads(desk.broker.ask(321, {**asked, "consumerGroup": ""}).body)
    assert nobody["filterData"] == "@t is not online!"
    offline = json.loads(desk.broker.ask(321, {**asked, "consumerGroup": "g"}).body)
    assert offline["filterData"] == "g@t is not online!"
    subscription = {"topic": "t", "subString": "A", "subVersion": 1}
    consumer = {"groupName": "g", "subscriptionDataSet": [subscription]}
    desk.broker.ask(34, body={"clientID": "c", "consumerDataSet": [consumer]})
    online = json.loads(desk.broker.ask(321, {**asked, "consumerGroup": "g"}).body)
    assert [row["eval"] for row in online["queueData"]] == [False, True]
    assert online["subscriptionData"]["subString"] == "A"
    assert desk.broker.ask(321, {**asked, "queueId": 9}).code == 1
    assert desk.broker.ask(321, {**asked, "topic": "none"}).code == 17


def test_the_ha_status_is_that_of_a_master_without_slaves() -> None:
    desk = Desk()
    desk.broker.send("t", b"x")
    shown = json.loads(desk.broker.ask(907).body)
    assert (shown["master"], shown["inSyncSlaveNums"], shown["haConnectionInfo"]) == (True, 0, [])
    assert str(shown["masterCommitLogMaxOffset"]) == runtime(desk)["commitLogMaxOffset"]
