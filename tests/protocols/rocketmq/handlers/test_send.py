"""Send: stored messages, responses, and refusals."""

from __future__ import annotations

import json
from typing import Any

import pytest
from protocols.rocketmq.rocketmq_desk import Desk, units_of

from trimq.errors import OtherHome
from trimq.formats.rocketmq_unit.batch_body import BatchEntry, write_batch
from trimq.formats.rocketmq_unit.hosts import read_message_id, unpack_host
from trimq.formats.rocketmq_unit.properties import read_properties
from trimq.model import SYSTEM, Layout

SEND = {"a": "pg", "b": "t", "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 77, "h": 0}


def test_a_message_is_stored_as_it_was_sent_and_answered_with_its_place() -> None:
    desk = Desk()
    answer = desk.broker.send("orders", b"hello", 2, "TAGS\x01A\x02UNIQ_KEY\x01U1\x02a\x01b", h=7, f=1, j=2)
    assert answer.code == 0
    assert answer.fields["transactionId"] == "U1"
    assert (answer.fields["queueId"], answer.fields["queueOffset"]) == ("2", "0")
    assert read_message_id(answer.fields["msgId"]) == ("127.0.0.1", 10911, 0)
    (unit,) = units_of(desk.broker.pull("orders", queue=2))
    assert (unit.body, unit.flag, unit.sys_flag, unit.reconsume_times, unit.born_ms) == (b"hello", 7, 1, 2, 77)
    assert unpack_host(unit.born_host) == ("10.0.0.1", 5000)
    assert unpack_host(unit.store_host) == ("127.0.0.1", 10911)
    assert read_properties(unit.properties) == {
        "TAGS": "A",
        "UNIQ_KEY": "U1",
        "a": "b",
        "CLUSTER": "DefaultCluster",
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
    }


def test_the_older_header_does_the_same() -> None:
    desk = Desk()
    fields = {"producerGroup": "pg", "topic": "t", "defaultTopic": "TBW102", "defaultTopicQueueNums": 4, "queueId": 1}
    answer = desk.broker.ask(10, {**fields, "sysFlag": 0, "bornTimestamp": 1, "flag": 0}, b"x")
    assert (answer.code, answer.fields["queueId"], len(answer.fields["transactionId"])) == (0, "1", 32)


def test_a_message_without_a_key_gets_one_of_its_own() -> None:
    desk = Desk()
    first, second = desk.broker.send("t"), desk.broker.send("t")
    assert first.fields["transactionId"] != second.fields["transactionId"]
    assert second.fields["queueOffset"] == "1"


def test_the_answer_waits_until_the_message_is_durable() -> None:
    desk = Desk()
    reply = desk.broker.begin(310, SEND, b"x")
    assert reply is not None
    desk.runner.end_pass()
    assert not reply.is_ready(desk.runner.passes.written, desk.runner.passes.durable)
    assert desk.take(reply).code == 0


def test_a_write_that_fails_is_refused_and_the_offset_given_again() -> None:
    desk = Desk()
    desk.broker.send("t", b"kept")
    desk.fail_writes()
    refused = desk.broker.send("t", b"lost")
    assert (refused.code, refused.fields["MSG_REGION"]) == (1, "DefaultRegion")
    desk.files.before = lambda operation, name: None
    assert desk.broker.send("t", b"next").fields["queueOffset"] == "1"


def test_one_way_is_never_answered_but_stored() -> None:
    desk = Desk()
    assert desk.broker.begin(310, SEND, b"x", flag=2) is None
    assert desk.broker.begin(310, {**SEND, "b": "a b"}, b"x", flag=2) is None
    desk.runner.settle()
    assert len(units_of(desk.broker.pull("t"))) == 1


@pytest.mark.parametrize(("asked", "made"), [(4, 4), (16, 8), (1, 1)])
def test_a_topic_is_made_after_its_default(asked: int, made: int) -> None:
    desk = Desk()
    assert desk.broker.send("new", d=asked).code == 0
    (queues,) = json.loads(desk.names.ask(105, {"topic": "new"}).body)["queueDatas"]
    assert (queues["readQueueNums"], queues["writeQueueNums"], queues["perm"]) == (made, made, 6)


@pytest.mark.parametrize("queue", [-1, -5])
def test_without_a_queue_one_is_drawn(queue: int) -> None:
    desk = Desk()
    found = {desk.broker.send("t", queue=queue).fields["queueId"] for _ in range(60)}
    assert found == {"0", "1", "2", "3"}


REFUSED = [
    ({"b": "a b"}, b"x", 29),
    ({"b": "a$b"}, b"x", 29),
    ({"b": ""}, b"x", 29),
    ({"b": "L" * 128}, b"x", 29),
    ({"e": 4}, b"x", 29),
    ({"b": "new", "c": "nodefault"}, b"x", 17),
    ({"b": "new", "c": "BenchmarkTest"}, b"x", 17),
    ({"b": "new", "d": 0}, b"x", 29),
    ({"b": "SCHEDULE_TOPIC_XXXX"}, b"x", 16),
    ({"b": "rmq_sys_wheel_timer"}, b"x", 16),
    ({}, b"", 13),
    ({}, b"x" * (4 * 1024 * 1024 + 1), 13),
    ({"i": "a\x01" + "b" * 32_767}, b"x", 13),
    ({"i": "a\x01b\x00c\x02"}, b"x", 13),
    ({"i": "DELAY\x013\x02", "m": True}, write_batch([BatchEntry(0, b"x", b"")]), 13),
    ({"i": "TRAN_MSG\x01true\x02", "m": True}, write_batch([BatchEntry(0, b"x", b"")]), 13),
    ({"m": True}, b"not a batch", 13),
    ({"m": True}, b"", 13),
    ({"m": True, "b": "%RETRY%g"}, write_batch([BatchEntry(0, b"x", b"")]), 13),
]


@pytest.mark.parametrize(("changes", "body", "code"), REFUSED)
def test_an_invalid_send_is_refused_with_its_code_and_leaves_nothing_behind(
    changes: dict[str, Any], body: bytes, code: int
) -> None:
    desk = Desk()
    desk.broker.send("t")
    answer = desk.broker.ask(310, {**SEND, **changes}, body)
    assert answer.code == code
    assert answer.remark
    assert answer.fields["TRACE_ON"] == "true"
    assert len(units_of(desk.broker.pull("t"))) == 1


def test_a_send_under_short_names_needs_no_producer_group() -> None:
    desk = Desk()
    desk.broker.send("t")
    fields = {name: value for name, value in SEND.items() if name != "a"}
    assert desk.broker.ask(310, fields, b"x").code == 0


@pytest.mark.parametrize("missing", [name for name in SEND if name != "a"])
def test_a_send_without_a_required_field_is_refused_and_not_stored(missing: str) -> None:
    desk = Desk()
    desk.broker.send("t")
    fields = {name: value for name, value in SEND.items() if name != missing}
    assert desk.broker.ask(310, fields, b"x").code == 1
    assert desk.broker.ask(320, {**fields, "m": True}, write_batch([BatchEntry(0, b"x", b"")])).code == 1
    assert len(units_of(desk.broker.pull("t"))) == 1


def test_a_field_of_another_type_is_refused() -> None:
    assert Desk().broker.ask(310, {**SEND, "e": "x"}, b"x").code == 1


def test_topics_are_not_made_where_that_is_off() -> None:
    assert Desk(auto_create_topics=False).broker.send("t").code == 17


def test_a_batch_becomes_separate_messages() -> None:
    desk = Desk()
    body = write_batch(
        [BatchEntry(0, b"a", b"TAGS\x01A\x02"), BatchEntry(3, b"bb", b""), BatchEntry(0, b"c", b"KEYS\x01k\x02")]
    )
    answer = desk.broker.send("t", body, m=True)
    ids = answer.fields["msgId"].split(",")
    units = units_of(desk.broker.pull("t"))
    assert [(unit.body, unit.flag, unit.queue_offset) for unit in units] == [(b"a", 0, 0), (b"bb", 3, 1), (b"c", 0, 2)]
    assert [read_message_id(id).position for id in ids] == [unit.position for unit in units]
    assert "transactionId" not in answer.fields
    assert units[1].properties == b""


def test_flags_about_hosts_are_set_by_the_broker() -> None:
    desk = Desk()
    desk.broker.send("t", f=48)
    (unit,) = units_of(desk.broker.pull("t"))
    assert unit.sys_flag == 0


def test_a_message_to_a_topic_of_kafka_is_stored_there() -> None:
    desk = Desk()
    topic, _ = desk.core.broker.topics.create(SYSTEM, "theirs", Layout.PARTITION_LOG, 1, {})
    assert desk.broker.send("theirs").code == 0
    assert topic.stream(0).end == 1


def test_a_topic_of_rocketmq_cannot_be_created_as_one_of_kafka() -> None:
    desk = Desk()
    desk.broker.send("ours")
    with pytest.raises(OtherHome, match="commit-log"):
        desk.core.broker.topics.create(SYSTEM, "ours", Layout.PARTITION_LOG, 1, {})


def test_messages_outlive_a_restart() -> None:
    desk = Desk()
    for number in range(5):
        desk.broker.send("t", b"%d" % number)
    again = desk.restart()
    assert [unit.body for unit in units_of(again.broker.pull("t"))] == [b"0", b"1", b"2", b"3", b"4"]
    assert again.broker.send("t").fields["queueOffset"] == "5"


def test_a_refused_empty_message_creates_no_topic() -> None:
    desk = Desk()
    assert desk.broker.send("t", b"").code == 13
    assert desk.broker.ask(320, desk_fields("t", m="true"), b"").code == 13
    assert desk.broker.ask(351, {"topic": "t"}).code == 17


def test_a_message_that_claims_to_be_an_inner_batch_is_refused() -> None:
    desk = Desk()
    assert desk.broker.send("t", properties="INNER_NUM\x012\x02").code == 13
    assert desk.broker.send("t", properties="INNER_NUMBER\x012\x02").code == 0


def test_the_refusal_of_a_queue_names_the_counts_of_the_topic() -> None:
    desk = Desk()
    desk.broker.send("t")
    refused = desk.broker.send("t", queue=99)
    assert refused.remark == (
        "request queueId[99] is illegal, TopicConfig [topicName=t, readQueueNums=4, writeQueueNums=4]"
    )


def desk_fields(topic: str, **changes: str) -> dict[str, str]:
    fields = {"a": "p", "b": topic, "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "0", "h": "0", "i": ""}
    return {**fields, **changes}
