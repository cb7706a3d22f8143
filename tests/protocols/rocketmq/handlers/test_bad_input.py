"""Commands of every code with invalid fields and bodies: each is answered or ignored, memory is bounded, and the next
command is served."""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from protocols.rocketmq.rocketmq_desk import Desk, Peer, bodies_of, receive, request

from trimq.protocols.contract import DeferredReply, Reply
from trimq.protocols.rocketmq.handlers.tables import BROKER, NAME_SERVER, WITH_LARGE_BODIES
from trimq.protocols.rocketmq.wire import lenient_json
from trimq.wire.remoting import BrokenFrame, RemotingConnection

FIELDS = (
    *("topic", "queueId", "consumerGroup", "producerGroup", "group", "clientId", "clientID", "offset", "timestamp"),
    *("commitOffset", "queueOffset", "maxMsgNums", "sysFlag", "suspendTimeoutMillis", "subscription", "expressionType"),
    *("properties", "a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "l", "m", "batch", "flag", "bornTimestamp"),
    *("namespace", "key", "value", "brokerName", "brokerAddr", "clusterName", "brokerId", "compressed", "bodyCrc32"),
    *("readQueueNums", "writeQueueNums", "perm", "attributes", "groupName", "msgId", "transactionId", "delayLevel"),
    *("commitOrRollback", "tranStateTableOffset", "commitLogOffset", "maxNum", "beginTimestamp", "endTimestamp"),
    *("index", "count", "srcGroup", "destGroup", "statsName", "statsKey", "recallHandle", "extraInfo", "popTime"),
    *("invisibleTime", "pollTime", "bornTime", "initMode", "exp", "expType", "isForce", "topicList", "boundaryType"),
)
numbers = st.sampled_from([0, 1, 3, -1, -7, 2**31 - 1, -(2**31), 2**31, 2**63 - 1, -(2**63), 2**63, 10**30])
texts = st.sampled_from(
    ["", "t", "g", "TBW102", "%RETRY%g", "%DLQ%", "x" * 300, "a b", "\x00\x01\x02", "k\x01v\x02", "é𝄞", "true", "nan"]
)
values = numbers | texts | st.booleans() | st.text(max_size=8)
fields = st.dictionaries(st.sampled_from(FIELDS), values, max_size=24)
leaves = st.none() | st.booleans() | st.integers(-(2**65), 2**65) | st.floats(allow_nan=False) | st.text(max_size=6)
KEYS = (
    *("clientID", "consumerDataSet", "producerDataSet", "groupName", "subscriptionDataSet", "topic", "subVersion"),
    *(
        "mqSet",
        "queueId",
        "brokerName",
        "consumerGroup",
        "groupConfigList",
        "topicConfigList",
        "topicName",
        "queueDatas",
    ),
    *("subscriptionData", "subString", "expressionType", "topicConfigSerializeWrapper", "topicConfigTable", "acks"),
    *(
        "readQueueNums",
        "writeQueueNums",
        "perm",
        "dataVersion",
        "counter",
        "mode",
        "heartbeatFingerprint",
        "attributes",
    ),
)
trees = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
    max_leaves=12,
)
bodies = st.binary(max_size=60) | trees.map(lambda tree: json.dumps(tree).encode()) | st.just(b"a=b\n=\n#\nbrokerId=0")
CODES = sorted({*BROKER, *NAME_SERVER, 0, -1, 3, 999_999})


def resolve_now(reply: Reply | None) -> None:
    """Resolves a long poll at once."""
    if isinstance(reply, DeferredReply) and reply.on_resolve_now is not None:
        reply.on_resolve_now()


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(CODES), st.booleans(), fields, bodies), min_size=1, max_size=15))
def test_any_command_is_answered(commands: list[tuple[int, bool, dict[str, Any], bytes]]) -> None:
    desk = Desk()
    desk.broker.send("t", b"there")
    desk.broker.heartbeat("c", "g", "t")
    for code, to_names, given_fields, body in commands:
        resolve_now((desk.names if to_names else desk.broker).begin(code, given_fields, body))
        desk.runner.settle()
    assert desk.connect().ask(30, {"topic": "TBW102", "queueId": 0}).code == 0


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=60))
def test_any_bytes_are_a_command_or_the_end_of_the_connection(data: bytes) -> None:
    desk = Desk()
    peer = desk.connect()
    try:
        for start in (data, struct.pack(">i", len(data)) + data, struct.pack(">iI", 4 + len(data), len(data)) + data):
            give(peer, start)
    except BrokenFrame:
        return
    assert desk.connect().ask(30, {"topic": "TBW102", "queueId": 0}).code == 0


def give(peer: Peer, data: bytes) -> None:
    room = peer.conversation.get_buffer(-1)
    room[: len(data)] = data
    room.release()
    peer.conversation.buffer_updated(len(data))
    while (event := peer.conversation.next_event()) is not None:
        resolve_now(peer.conversation.handle(event))


@pytest.mark.parametrize(
    "start",
    [
        struct.pack(">i", 0),
        struct.pack(">i", -5),
        struct.pack(">i", 2**31 - 1),
        struct.pack(">iI", 10, 11) + bytes(6),
        struct.pack(">iI", 12, 8) + b"not json",
        struct.pack(">iI", 4 + 3, (1 << 24) | 3) + b"\0\0\0",
        b"GET / HTTP/1.1\r\n\r\n",
    ],
)
def test_frames_that_cannot_be_are_the_end(start: bytes) -> None:
    with pytest.raises(BrokenFrame):
        give(Desk().connect(), start)


def test_a_claimed_length_takes_no_memory() -> None:
    connection = RemotingConnection()
    connection.receive(struct.pack(">iI", 16 * 1024 * 1024 - 4, 100) + b"x" * 1000)
    assert connection.next_event() is None
    assert len(connection.get_buffer(-1)) <= 32 * 1024


def test_a_header_of_sixteen_mebibytes_is_the_end() -> None:
    size = 16 * 1024 * 1024 - 16
    connection = RemotingConnection()
    header = b'{"code":310,"extFields":{"i":"' + b"x" * (size - 33) + b'"}}'
    connection.receive(struct.pack(">iI", 4 + len(header), len(header)) + header)
    with pytest.raises(BrokenFrame):
        connection.next_event()


def test_deep_json_is_refused() -> None:
    desk = Desk()
    for code in (34, 41, 46, 200):
        assert desk.broker.ask(code, body=b"[" * 100_000).code == 1
        assert desk.broker.ask(code, body=b'{"a":' * 100_000).code == 1
    header = b'{"code":34,"extFields":' + b'{"a":' * 50_000
    with pytest.raises(BrokenFrame):
        give_all(desk.connect(), struct.pack(">iI", 4 + len(header), len(header)) + header)


def give_all(peer: Peer, data: bytes) -> None:
    for _ in receive(peer.conversation, data):
        pass
    peer.conversation.next_event()


@pytest.mark.parametrize(
    "batch",
    [
        b"\0",
        struct.pack(">i", 2**31 - 1) + bytes(20),
        struct.pack(">i", -1) + bytes(20),
        struct.pack(">iiiii", 24, 0, 0, 0, 100) + bytes(4),
        struct.pack(">iiiii", 24, 0, 0, 0, -1) + bytes(4),
        struct.pack(">iiiiih", 23, 0, 0, 0, 1, 0)[:-2] + b"x" + struct.pack(">h", 500),
        struct.pack(">iiiii", 23, 0, 0, 0, 1) + b"x" + struct.pack(">h", -1),
    ],
)
def test_a_batch_with_inconsistent_sizes_is_refused_as_a_whole(batch: bytes) -> None:
    desk = Desk()
    good = struct.pack(">iiiii", 23, 0, 0, 0, 1) + b"x" + struct.pack(">h", 0)
    fields = {"a": "pg", "b": "t", "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 1, "h": 0, "m": True}
    assert desk.broker.ask(320, fields, good).code == 0
    assert desk.broker.ask(320, fields, good + batch).code == 13
    assert bodies_of(desk.broker.pull("t")) == [b"x"]


@pytest.mark.parametrize("properties", ["a\x01b\x01c\x02", "a\x00\x01b\x02", "a\x01\x00\x02"])
def test_properties_with_their_separators_inside_are_refused(properties: str) -> None:
    desk = Desk()
    assert desk.broker.send("t", properties=properties).code == 13


def test_one_bad_client_does_not_harm_the_others() -> None:
    desk = Desk()
    good, bad = desk.connect(), desk.connect()
    with pytest.raises(BrokenFrame):
        give(bad, request(10, {}, b"", 0, 479)[:8] + b"garbage" * 100)
    bad.conversation.closed()
    assert good.send("t", b"fine").code == 0


@pytest.mark.parametrize("code", sorted({*BROKER, *NAME_SERVER} - WITH_LARGE_BODIES))
def test_a_long_body_that_is_not_a_message_is_refused_unread(code: int) -> None:
    desk = Desk(command_bytes=2000)
    peer = desk.broker if code in BROKER else desk.names
    answer = peer.ask(code, body=b"[" * 2001)
    assert (answer.code, answer.remark) == (1, "the body has 2001 bytes, rocketmq.command_bytes allows 2000")


def test_messages_and_registrations_may_be_longer() -> None:
    desk = Desk(command_bytes=2000)
    assert desk.broker.send("t", b"x" * 5000).code == 0
    topics = {f"t{number}": {"readQueueNums": 1, "writeQueueNums": 1, "perm": 6} for number in range(100)}
    registration = {"topicConfigSerializeWrapper": {"topicConfigTable": topics}}
    place = {"brokerName": "b", "brokerAddr": "10.0.0.2:1", "clusterName": "c", "brokerId": 0, "haServerAddr": ""}
    assert desk.names.ask(103, place, registration).code == 0


@pytest.mark.parametrize("code", [34, 41, 42, 18, 46, 225, 200, 400, 401, 200151])
def test_long_nearly_valid_json_is_refused_unread(code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def read(data: bytes) -> Any:
        raise AssertionError("this blocks the event loop")

    monkeypatch.setattr(lenient_json, "_read_leniently", read)
    answer = Desk().broker.ask(code, body=b"{" + b"a:1," * 100_000 + b"]")
    assert answer.code == 1
    assert "400002 bytes are not strict JSON, the limit is 131072 bytes" in (answer.remark or "")
