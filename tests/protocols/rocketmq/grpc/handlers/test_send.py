"""SendMessage over gRPC: stored messages, the choice of the queue, responses, and refusals."""

from __future__ import annotations

import hashlib
import zlib
from typing import Any

import pytest
from protocols.rocketmq.grpc.grpc_desk import GrpcDesk, message
from protocols.rocketmq.rocketmq_desk import NOW_MS, units_of

from trimq.formats.rocketmq_unit.properties import read_properties
from trimq.protocols.rocketmq.grpc.front_end import METHODS
from trimq.protocols.rocketmq.grpc.handlers.send import queue_of_group
from trimq.protocols.rocketmq.grpc.wire import wire
from trimq.protocols.rocketmq.grpc.wire.enums import Code, DigestType, MessageType


def desk_with(kind: str = "NORMAL", queues: int = 1, **settings: Any) -> GrpcDesk:
    desk = GrpcDesk(**settings)
    desk.make_topic("t", kind, queues)
    return desk


def stored(desk: GrpcDesk, queue: int = 0) -> list[Any]:
    return units_of(desk.desk.broker.pull("t", queue=queue))


def test_a_message_is_stored_with_all_its_properties() -> None:
    desk = desk_with()
    sent = message("t", b"hello", message_id="M1", tag="A", keys=["k1", "k2"], properties={"a": "b"})
    answer = desk.client().send(sent)
    (entry,) = answer.entries
    assert (answer.status.code, entry.message_id, entry.transaction_id, entry.offset) == (20000, "M1", "M1", 0)
    (unit,) = stored(desk)
    assert (unit.body, unit.sys_flag, unit.flag, unit.born_ms) == (b"hello", 0, 0, 1_600_000_000_123)
    assert read_properties(unit.properties) == {
        "UNIQ_KEY": "M1",
        "PGROUP": "t",
        "RECONSUME_TIME": "0",
        "BORN_TIMESTAMP": "1600000000123",
        "__BORNHOST": "there",
        "TAGS": "A",
        "KEYS": "k1 k2",
        "a": "b",
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
        "CLUSTER": "DefaultCluster",
    }


def test_the_answer_waits_until_the_message_is_durable() -> None:
    desk = desk_with()
    reply = desk.client().begin("SendMessage", wire.SendMessageRequest(messages=[message("t")]))
    desk.desk.runner.end_pass()
    passes = desk.desk.runner.passes
    assert not reply.is_ready(passes.written, passes.durable)
    assert desk.client().take("SendMessage", reply)[0].status.code == Code.OK


def test_a_write_that_fails_is_refused_and_its_place_given_again() -> None:
    desk = desk_with()
    desk.desk.fail_writes()
    refused = desk.client().send(message("t"))
    assert (refused.status.code, len(refused.entries)) == (Code.INTERNAL_SERVER_ERROR, 0)
    desk.desk.files.before = lambda operation, name: None
    assert desk.client().send(message("t")).entries[0].offset == 0


def test_several_messages_meet_in_one_queue_and_each_has_its_entry() -> None:
    desk = desk_with(queues=8)
    sent = [message("t", b"%d" % number, message_id=f"M{number}", tag="A") for number in range(33)]
    answer = desk.client().send(*sent)
    assert [(entry.message_id, entry.offset) for entry in answer.entries] == [(f"M{n}", n) for n in range(33)]
    (units,) = filter(None, (stored(desk, queue) for queue in range(8)))
    assert [bytes(unit.body) for unit in units] == [b"%d" % number for number in range(32)]
    assert read_properties(units[0].properties)["TAGS"] == "A"


def test_of_several_messages_all_are_stored_or_none() -> None:
    desk = desk_with()
    assert desk.client().send(message("t", b"3"), message("t", b"")).status.code == Code.MESSAGE_BODY_EMPTY
    assert stored(desk) == []


def test_a_message_that_is_born_at_no_time_is_refused_with_those_beside_it() -> None:
    desk = desk_with()
    unborn = message("t", b"2")
    unborn.system_properties.born_timestamp.seconds = (1 << 63) - 1
    assert desk.client().send(message("t", b"1"), unborn).status.code == Code.BAD_REQUEST
    assert stored(desk) == []


def test_of_several_messages_none_is_stored_when_there_is_no_file_for_the_last() -> None:
    """The first message would still fit into the existing file."""
    desk = desk_with(commit_file_bytes=1 << 16)
    desk.client().send(message("t", bytes(40_000)))
    desk.desk.fail_writes(operation="create")
    refused = desk.client().send(message("t", bytes(20_000)), message("t", bytes(20_000)))
    assert (refused.status.code, len(refused.entries)) == (Code.INTERNAL_SERVER_ERROR, 0)
    desk.desk.files.before = lambda operation, name: None
    assert desk.client().send(message("t", b"next")).entries[0].offset == 1


# Queues chosen by Apache RocketMQ's proxy.
GENUINE = {"a": 7, "b": 3, "c": 7, "d": 1, "e": 4, "f": 6, "g": 4, "h": 2}


def test_messages_of_one_group_keep_its_queue_also_when_several_are_sent_at_once() -> None:
    desk = desk_with("FIFO", 8)
    names = ("a", "b", "a")
    desk.client().send(
        *[message("t", name.encode(), MessageType.FIFO, message_group=f"group-{name}") for name in names]
    )
    assert [bytes(unit.body) for unit in stored(desk, GENUINE["a"])] == [b"a", b"a"]
    assert [bytes(unit.body) for unit in stored(desk, GENUINE["b"])] == [b"b"]


# Apache RocketMQ's proxy answers every error in a request with several messages with 50001.
NOT_TOGETHER: list[tuple[str, dict[str, Any]]] = [
    ("DELAY", {"due_ms": NOW_MS + 1000}),
    ("TRANSACTION", {"kind": MessageType.TRANSACTION}),
    ("NORMAL", {"body": b"x" * 600}),
]


@pytest.mark.parametrize(("kind", "given"), NOT_TOGETHER)
def test_a_special_message_is_refused_among_several(kind: str, given: dict[str, Any]) -> None:
    desk = desk_with(kind, message_bytes=1000)
    refused = desk.client().send(message("t", **given), message("t", **given))
    assert (refused.status.code, len(refused.entries)) == (Code.INTERNAL_SERVER_ERROR, 0)
    assert desk.client().send(message("t", **given)).status.code == Code.OK


@pytest.mark.parametrize("name", GENUINE)
def test_a_message_group_has_the_same_queue_as_in_apache_rocketmqs_proxy(name: str) -> None:
    assert queue_of_group(f"group-{name}", 8) == GENUINE[name]
    desk = desk_with("FIFO", 8)
    desk.client().send(message("t", kind=MessageType.FIFO, message_group=f"group-{name}"))
    (unit,) = stored(desk, GENUINE[name])
    assert read_properties(unit.properties)["__SHARDINGKEY"] == f"group-{name}"


def test_a_delayed_message_comes_when_it_is_due_and_may_be_recalled_before() -> None:
    desk = desk_with("DELAY")
    client = desk.client()
    client.send(message("t", b"kept", due_ms=NOW_MS + 60_000))
    handle = client.send(message("t", b"recalled", due_ms=NOW_MS + 60_000, message_id="R")).entries[0].recall_handle
    recalled = client.call("RecallMessage", topic=wire.Resource(name="t"), recall_handle=handle)
    assert (recalled.status.code, recalled.message_id) == (Code.OK, "R")
    desk.desk.advance(59_000)
    assert stored(desk) == []
    desk.desk.advance(2_000)
    assert [bytes(unit.body) for unit in stored(desk)] == [b"kept"]


@pytest.mark.parametrize(
    ("topic", "handle", "code"),
    [
        ("t", "zz", Code.INTERNAL_SERVER_ERROR),
        ("no", "zz", Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
        ("normal", "zz", Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
    ],
)
def test_an_invalid_handle_recalls_nothing(topic: str, handle: str, code: Code) -> None:
    desk = desk_with("DELAY")
    desk.make_topic("normal")
    recalled = desk.client().call("RecallMessage", topic=wire.Resource(name=topic), recall_handle=handle)
    assert recalled.status.code == code


BODY = b"hello"
DIGESTS = [
    (DigestType.MD5, hashlib.md5(BODY).hexdigest().upper(), Code.OK),
    (DigestType.MD5, hashlib.md5(BODY).hexdigest(), Code.OK),
    (DigestType.SHA1, hashlib.sha1(BODY).hexdigest(), Code.OK),
    (DigestType.CRC32, f"{zlib.crc32(BODY):08X}", Code.OK),
    (DigestType.CRC32, str(zlib.crc32(BODY)), Code.OK),
    (DigestType.CRC32, "12345678", Code.MESSAGE_CORRUPTED),
    (DigestType.MD5, hashlib.md5(b"other").hexdigest(), Code.MESSAGE_CORRUPTED),
    (DigestType.DIGEST_TYPE_UNSPECIFIED, "12345678", Code.MESSAGE_CORRUPTED),
]


@pytest.mark.parametrize(("kind", "checksum", "code"), DIGESTS)
def test_a_digest_is_compared_with_the_body(kind: DigestType, checksum: str, code: Code) -> None:
    desk = desk_with()
    sent = message("t", BODY, body_digest=wire.Digest(type=kind, checksum=checksum))
    assert desk.client().send(sent).status.code == code
    assert len(stored(desk)) == (code == Code.OK)


REFUSED: list[tuple[dict[str, Any], Code]] = [
    ({"topic": "no"}, Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
    ({"topic": "a b"}, Code.ILLEGAL_TOPIC),
    ({"topic": ""}, Code.ILLEGAL_TOPIC),
    ({"topic": "x" * 128}, Code.ILLEGAL_TOPIC),
    ({"topic": "TBW102"}, Code.ILLEGAL_TOPIC),
    ({"topic": "rmq_sys_anything"}, Code.ILLEGAL_TOPIC),
    ({"topic": "%RETRY%g"}, Code.INTERNAL_SERVER_ERROR),
    ({"topic": "%RETRY%g", "properties": {"TAGS": "x"}}, Code.ILLEGAL_MESSAGE_PROPERTY_KEY),
    ({"body": b""}, Code.MESSAGE_BODY_EMPTY),
    ({"body": b"x" * 1001}, Code.MESSAGE_BODY_TOO_LARGE),
    ({"message_id": " "}, Code.ILLEGAL_MESSAGE_ID),
    ({"tag": "a|b"}, Code.ILLEGAL_MESSAGE_TAG),
    ({"tag": " "}, Code.ILLEGAL_MESSAGE_TAG),
    ({"keys": ["a\x02"]}, Code.ILLEGAL_MESSAGE_KEY),
    ({"keys": [" "]}, Code.ILLEGAL_MESSAGE_KEY),
    ({"properties": {"TAGS": "x"}}, Code.ILLEGAL_MESSAGE_PROPERTY_KEY),
    ({"properties": {"a": "\x01"}}, Code.ILLEGAL_MESSAGE_PROPERTY_KEY),
    ({"properties": {"": "x"}}, Code.ILLEGAL_MESSAGE_PROPERTY_KEY),
    ({"properties": {"a": "\x85"}}, Code.ILLEGAL_MESSAGE_PROPERTY_KEY),
    ({"tag": "\x9f"}, Code.ILLEGAL_MESSAGE_TAG),
    ({"keys": ["k" * 17_000]}, Code.MESSAGE_PROPERTIES_TOO_LARGE),
    ({"keys": ["k" * 9_000], "properties": {"a": "v" * 9_000}}, Code.MESSAGE_PROPERTIES_TOO_LARGE),
    ({"message_id": "", "properties": {"TAGS": "x"}}, Code.ILLEGAL_MESSAGE_PROPERTY_KEY),
    ({"properties": {f"p{number}": "v" for number in range(129)}}, Code.MESSAGE_PROPERTIES_TOO_LARGE),
    ({"properties": {"a": "v" * 17_000}}, Code.MESSAGE_PROPERTIES_TOO_LARGE),
    ({"message_group": "g" * 64}, Code.ILLEGAL_MESSAGE_GROUP),
    ({"message_group": " "}, Code.ILLEGAL_MESSAGE_GROUP),
    ({"message_group": "g"}, Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
    ({"due_ms": NOW_MS + 1000}, Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
    ({"due_ms": NOW_MS + 4 * 86_400_000}, Code.ILLEGAL_DELIVERY_TIME),
    ({"kind": MessageType.TRANSACTION}, Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
    ({"kind": MessageType.TRANSACTION, "recovery_ms": 3_601_000}, Code.BAD_REQUEST),
    ({"lite_topic": "l"}, Code.UNSUPPORTED),
    ({"priority": 1}, Code.UNSUPPORTED),
]


@pytest.mark.parametrize(("changes", "code"), REFUSED)
def test_an_invalid_message_is_refused_and_not_stored(changes: dict[str, Any], code: Code) -> None:
    desk = desk_with(message_bytes=1000)
    assert desk.client().send(message(**{"topic": "t", **changes})).status.code == code
    assert stored(desk) == []


@pytest.mark.parametrize(
    ("messages", "code"), [([], Code.MESSAGE_CORRUPTED), ([message("t"), message("u")], Code.MESSAGE_CORRUPTED)]
)
def test_messages_are_of_one_topic(messages: list[Any], code: Code) -> None:
    assert desk_with().client().send(*messages).status.code == code


@pytest.mark.parametrize("method", METHODS)
def test_a_client_is_identified_by_its_metadata(method: str) -> None:
    client = desk_with().client("")
    first = client.take(method, client.begin(method, METHODS[method].request()))[0]
    assert first.status.code == Code.CLIENT_ID_REQUIRED


def test_a_compressed_body_is_stored_and_marked_as_such() -> None:
    desk = desk_with()
    desk.client().send(message("t", b"\x1f\x8bxyz", body_encoding=2))
    (unit,) = stored(desk)
    assert (bytes(unit.body), unit.sys_flag) == (b"\x1f\x8bxyz", 1)


def test_sent_messages_are_counted_for_their_topic() -> None:
    desk = desk_with()
    desk.client().send(message("t"))
    counted = desk.desk.broker.ask(315, {"statsName": "TOPIC_PUT_NUMS", "statsKey": "t"})
    assert b'"statsMinute":{"sum":1,' in counted.body


def test_a_topic_without_the_right_to_write_refuses() -> None:
    desk = desk_with()
    desk.desk.broker.ask(17, {"topic": "t", "readQueueNums": 1, "writeQueueNums": 1, "perm": 4})
    assert desk.client().send(message("t")).status.code == Code.FORBIDDEN


@pytest.mark.parametrize("tag", ["\u00a0", "\u2007"])
def test_a_space_that_does_not_break_is_no_blank(tag: str) -> None:
    desk = desk_with()
    assert desk.client().send(message("t", tag=tag)).status.code == Code.OK


@pytest.mark.parametrize("host", ["", " "])
def test_a_message_without_a_host_is_born_at_the_address_of_its_client(host: str) -> None:
    desk = desk_with()
    desk.client().send(message("t", born_host=host))
    (unit,) = stored(desk)
    assert read_properties(unit.properties)["__BORNHOST"] == "10.0.0.9:5009"


def test_a_trace_context_may_be_a_user_property() -> None:
    desk = desk_with()
    assert desk.client().send(message("t", properties={"TRACE_CONTEXT": "tc"})).status.code == Code.OK


def test_an_empty_message_group_is_none() -> None:
    desk = desk_with()
    assert desk.client().send(message("t", message_group="")).status.code == Code.OK
    (unit,) = stored(desk)
    assert "__SHARDINGKEY" not in read_properties(unit.properties)


def test_messages_of_two_namespaces_are_not_of_one_topic() -> None:
    other = message("t")
    other.topic.resource_namespace = "n"
    assert desk_with().client().send(message("t"), other).status.code == Code.MESSAGE_CORRUPTED


@pytest.mark.parametrize("id", [" ", "\t"])
def test_a_blank_client_id_is_none(id: str) -> None:
    assert desk_with().client(id).send(message("t")).status.code == Code.CLIENT_ID_REQUIRED


@pytest.mark.parametrize(("keys", "stored"), [([""], None), (["", "k"], "k"), (["k", ""], "k")])
def test_an_empty_key_is_accepted_and_left_out(keys: list[str], stored: str | None) -> None:
    desk = GrpcDesk()
    desk.make_topic("t")
    answer = desk.client().send(message("t", b"hello", keys=keys))
    assert answer.status.code == Code.OK
    (unit,) = units_of(desk.desk.broker.pull("t"))
    assert read_properties(unit.properties).get("KEYS") == stored


@pytest.mark.parametrize("recovery_ms", [-1000, 0, 3_600_000])
def test_a_recovery_duration_may_be_negative_as_for_apache_rocketmq(recovery_ms: int) -> None:
    desk = GrpcDesk()
    desk.make_topic("x", kind="TRANSACTION")
    sent = desk.client().send(message("x", kind=MessageType.TRANSACTION, recovery_ms=recovery_ms))
    assert sent.status.code == Code.OK
