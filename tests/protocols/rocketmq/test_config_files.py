"""Configuration files of RocketMQ: stores of Apache RocketMQ are opened with their topics, groups and offsets, and
TriMQ leaves files that Apache RocketMQ can read."""

from __future__ import annotations

import errno
import json
import struct

import pytest
from doubles import FaultyFiles
from protocols.rocketmq.genuine_stores import SIZES, unpacked
from protocols.rocketmq.rocketmq_desk import Desk, bodies_of, units_of

from trimq.errors import StartupError
from trimq.formats.rocketmq_unit.properties import find_property
from trimq.protocols.rocketmq import config_files
from trimq.protocols.rocketmq.wire.lenient_json import read_json

# Time at which Apache RocketMQ wrote the stores, to the minute; its messages appear in the order of these tests.
THEN_MS = 1_794_859_560_000
HOUR_MS = 3_600_000


def opened(name: str, now_ms: int = THEN_MS) -> Desk:
    return Desk(unpacked(name), now_ms, **SIZES)


def all_bodies(desk: Desk, topic: str, queue: int = 0, offset: int = 0) -> list[bytes]:
    found: list[bytes] = []
    while True:
        command = desk.broker.pull(topic, offset + len(found), queue)
        if command.code != 0:
            return found
        found += bodies_of(command)


@pytest.mark.parametrize(("name", "count"), [("clean", 40), ("killed", 60)])
def test_messages_are_where_they_were(name: str, count: int) -> None:
    desk = opened(name)
    for queue in range(4):
        plain = [b"order %02d" % number for number in range(queue, 40, 4)]
        extra = {0: [b"level 1"], 1: [b"timer soon"], 2: [b"committed"], 3: []}[queue]
        later = [b"order %02d" % number for number in range(40 + queue, count, 4)]
        last = [b"last words"] if name == "killed" and queue == 0 else []
        assert all_bodies(desk, "orders", queue) == plain + extra + later + last
    assert all_bodies(desk, "gone") == [b"new 0", b"new 1"]


@pytest.mark.parametrize(("name", "first"), [("clean", 2), ("killed", 5)])
def test_consumers_go_on_where_they_were(name: str, first: int) -> None:
    desk = opened(name)
    for queue in range(4):
        asked = {"consumerGroup": "readers", "topic": "orders", "queueId": queue}
        assert desk.broker.ask(14, asked).fields["offset"] == str(first + queue)
    limited = json.loads(desk.broker.ask(352, {"group": "limited"}).body)
    assert (limited["retryMaxTimes"], limited["consumeBroadcastEnable"]) == (3, False)
    orders = json.loads(desk.broker.ask(351, {"topic": "orders"}).body)
    assert (orders["readQueueNums"], orders["writeQueueNums"], orders["perm"]) == (4, 4, 6)


def test_messages_are_found_by_their_keys() -> None:
    desk = opened("killed")
    asked = {"topic": "orders", "key": "k41", "maxNum": 32, "beginTimestamp": 0, "endTimestamp": 2 * THEN_MS}
    assert bodies_of(desk.broker.ask(12, asked)) == [b"order 41"]


@pytest.mark.parametrize("name", ["clean", "killed"])
def test_pending_messages_are_delivered_once_and_delivered_ones_not_again(name: str) -> None:
    desk = opened(name)
    before = {queue: len(all_bodies(desk, "orders", queue)) for queue in range(4)}
    desk.advance(3 * HOUR_MS)
    assert all_bodies(desk, "orders", 0, before[0]) == [b"level 18"]
    assert all_bodies(desk, "orders", 1, before[1]) == []
    assert [bytes(unit.body) for unit in units_of(desk.broker.pull("%RETRY%readers"))] == [b"order 03", b"order 07"]
    desk.advance(24 * HOUR_MS)
    assert all_bodies(desk, "orders", 1, before[1]) == [b"timer late"]
    desk = desk.restart()
    desk.advance(HOUR_MS)
    assert [len(all_bodies(desk, "orders", queue)) - before[queue] for queue in range(4)] == [1, 1, 0, 0]


@pytest.mark.parametrize("name", ["clean", "killed"])
def test_a_transaction_that_was_open_is_asked_for(name: str) -> None:
    desk = opened(name)
    before = len(all_bodies(desk, "orders", 2))
    desk.broker.ask(34, body={"clientID": "c", "producerDataSet": [{"groupName": "pg"}], "consumerDataSet": []})
    desk.advance(60_000)
    (question,) = {each.fields["msgId"]: each for each in desk.broker.way.sent if each.code == 39}.values()
    (unit,) = units_of(question)
    assert (bytes(unit.body), find_property(unit.properties, "UNIQ_KEY")) == (b"open", "HALF3")
    asked = desk.broker.way.sent[-1].fields
    decision = {"producerGroup": "pg", "commitOrRollback": 8, "fromTransactionCheck": True, "msgId": asked["msgId"]}
    places = {name: asked[name] for name in ("tranStateTableOffset", "commitLogOffset", "transactionId")}
    assert desk.broker.ask(37, {**decision, **places}).code == 0
    assert all_bodies(desk, "orders", 2, before) == [b"open"]


def test_a_taken_store_is_read_from_our_tables_alone() -> None:
    desk = opened("clean")
    desk.broker.ask(15, {"consumerGroup": "readers", "topic": "orders", "queueId": 0, "commitOffset": 9})
    desk = desk.kill()  # before any of the files was written
    assert desk.broker.ask(14, {"consumerGroup": "readers", "topic": "orders", "queueId": 0}).fields["offset"] == "9"
    assert all_bodies(desk, "gone") == [b"new 0", b"new 1"]


def test_a_store_without_its_files_has_the_topics_of_its_messages() -> None:
    files = unpacked("clean")
    for name in files.names("store/config"):
        files.remove(f"store/config/{name}")
    desk = Desk(files, THEN_MS, **SIZES)
    assert len(all_bodies(desk, "orders", 3)) == 10
    assert json.loads(desk.broker.ask(351, {"topic": "orders"}).body)["readQueueNums"] == 4


def test_a_torn_file_is_taken_as_it_was_before() -> None:
    files = unpacked("clean")
    file = files.open("store/config/topics.json")
    data = file.read(0, file.size())
    files.open("store/config/topics.json.bak", create=True).write(0, [data])
    file.resize(len(data) // 2)
    desk = Desk(files, THEN_MS, **SIZES)
    assert len(all_bodies(desk, "orders", 3)) == 10


def test_a_topic_with_messages_that_cannot_be_taken_over_ends_the_start() -> None:
    files = unpacked("clean")
    file = files.open("store/config/topics.json")
    data = file.read(0, file.size()).replace(b'"readQueueNums":4', b'"readQueueNums":"many"')
    file.write(0, [data])
    with pytest.raises(StartupError, match="orders"):
        Desk(files, THEN_MS, **SIZES)


def test_queues_of_batches_are_refused() -> None:
    files = unpacked("clean")
    files.make_folder("store/batchconsumequeue/orders")
    with pytest.raises(StartupError, match="batch"):
        Desk(files, THEN_MS, **SIZES)


# -- files that TriMQ leaves


def read_config(files: FaultyFiles, name: str) -> bytes:
    file = files.open(f"store/config/{name}")
    return file.read(0, file.size())


def written(desk: Desk) -> None:
    desk.broker.send("orders", b"one", 1)
    desk.broker.ask(200, body={"groupName": "readers", "retryMaxTimes": 7})
    desk.broker.ask(15, {"consumerGroup": "readers", "topic": "orders", "queueId": 1, "commitOffset": 1})
    desk.broker.send("orders", b"soon", properties="DELAY\x011\x02UNIQ_KEY\x01u1\x02")
    desk.broker.send("orders", b"late", properties="TIMER_DELAY_MS\x011500\x02UNIQ_KEY\x01u2\x02")
    desk.advance(2000)


def check_written(files: FaultyFiles) -> None:
    table = read_json(read_config(files, "topics.json"))["topicConfigTable"]
    assert (table["orders"]["readQueueNums"], table["orders"]["topicName"]) == (4, "orders")
    assert "SCHEDULE_TOPIC_XXXX" in table
    groups = read_json(read_config(files, "subscriptionGroup.json"))["subscriptionGroupTable"]
    assert groups["readers"]["retryMaxTimes"] == 7
    offsets = read_json(read_config(files, "consumerOffset.json"))["offsetTable"]
    assert offsets["orders@readers"] == {"1": 1}
    assert not any("CID_RMQ_SYS_DELAY" in name for name in offsets)
    assert read_json(read_config(files, "delayOffset.json"))["offsetTable"] == {"1": 1}
    assert struct.unpack_from(">qqq", read_config(files, "timercheck"))[1:] == (0, 1)


def test_a_stop_writes_files_that_apache_rocketmq_reads() -> None:
    desk = Desk(**SIZES)
    written(desk)
    files = desk.files
    desk.restart()
    check_written(files)


def test_the_files_follow_within_seconds() -> None:
    desk = Desk(**SIZES)
    written(desk)
    desk.let_pass(5000)
    check_written(desk.files)
    before = read_config(desk.files, "topics.json")
    desk.files.remove("store/config/topics.json")
    desk.let_pass(20_000)
    assert "topics.json" not in desk.files.names("store/config"), "an unchanged file was written"
    desk.broker.send("more")
    desk.let_pass(5000)
    assert len(read_config(desk.files, "topics.json")) > len(before)


def test_a_file_that_cannot_be_written_is_written_later() -> None:
    desk = Desk(**SIZES)
    written(desk)

    def refuse(operation: str, name: str) -> None:
        if "config/" in name:
            raise OSError(errno.ENOSPC, "full")

    kept, desk.files.before = desk.files.before, refuse
    desk.let_pass(5000)
    desk.files.before = kept
    desk.let_pass(5000)
    check_written(desk.files)


def test_our_own_files_are_taken_over_by_another_trimq() -> None:
    """Uses the log and the configuration files alone, without our tables, as Apache RocketMQ does."""
    desk = Desk(**SIZES)
    written(desk)
    files = desk.files
    desk.restart()
    for name in files.names("tables"):
        files.remove(f"tables/{name}")
    again = Desk(files, desk.message_time.now_ms(), **SIZES)
    assert again.broker.ask(14, {"consumerGroup": "readers", "topic": "orders", "queueId": 1}).fields["offset"] == "1"
    assert all_bodies(again, "orders", 1) == [b"one"]
    again.advance(10_000)
    assert all_bodies(again, "orders") == [b"soon", b"late"]


# -- many topics and groups


def many_cursors(desk: Desk, groups: int) -> None:
    for number in range(groups):
        desk.broker.ask(200, body={"groupName": f"g{number}"})
        commit(desk, number, number)


def commit(desk: Desk, number: int, offset: int) -> None:
    asked = {"consumerGroup": f"g{number}", "topic": "orders", "queueId": 0, "commitOffset": offset}
    assert desk.broker.ask(15, asked).code == 0


def offsets_of(files: FaultyFiles) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = read_json(read_config(files, "consumerOffset.json"))["offsetTable"]
    return found


def test_many_cursors_are_written_in_several_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config_files, "_BYTES_AT_ONCE", 100)
    desk = Desk(**SIZES)
    desk.broker.send("orders")
    desk.let_pass(5000)
    many_cursors(desk, 60)
    before = read_config(desk.files, "consumerOffset.json")
    desk.let_pass(4999)
    desk.liveness.step(desk.liveness.now_ms() + 1)
    turns = 0
    while desk.liveness.next_due_ms() == desk.liveness.now_ms() and turns < 60:
        assert read_config(desk.files, "consumerOffset.json") == before, "the file was written in part"
        commit(desk, turns, 99)
        desk.liveness.step(desk.liveness.now_ms())
        turns += 1
    assert turns > 5
    assert len(offsets_of(desk.files)) == 60
    desk.let_pass(5000)
    assert [offsets_of(desk.files)[f"orders@g{number}"]["0"] for number in range(60)] == [
        99 if number < turns else number for number in range(60)
    ]


@pytest.mark.parametrize("name", ["topics.json", "subscriptionGroup.json"])
def test_many_topics_and_groups_are_written_in_several_turns(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config_files, "_ROWS_AT_ONCE", 2)
    desk = Desk(**SIZES)
    for number in range(20):
        desk.broker.send(f"t{number}")
        desk.broker.ask(200, body={"groupName": f"g{number}"})
    desk.let_pass(4999)
    desk.liveness.step(desk.liveness.now_ms() + 1)
    assert name not in desk.files.names("store/config")
    desk.let_pass(0)
    tables = read_json(read_config(desk.files, name))
    assert len(tables.get("topicConfigTable") or tables["subscriptionGroupTable"]) >= 20


def test_a_stop_amid_the_writing_writes_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config_files, "_BYTES_AT_ONCE", 100)
    monkeypatch.setattr(config_files, "_ROWS_AT_ONCE", 2)
    desk = Desk(**SIZES)
    written(desk)
    many_cursors(desk, 30)
    desk.let_pass(4999)
    desk.liveness.step(desk.liveness.now_ms() + 1)
    files = desk.files
    desk.restart()
    check_written(files)
    assert len(offsets_of(files)) == 31
