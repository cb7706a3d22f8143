"""Flush time-out: the producer of a message that is not durable in time gets an error, and the message stays stored."""

from __future__ import annotations

from typing import Any

import pytest
from protocols.rocketmq.grpc.grpc_desk import GrpcDesk, message
from protocols.rocketmq.rocketmq_desk import Desk, bodies_of, read_frame

from trimq.formats.rocketmq_unit.batch_body import write_batch
from trimq.protocols.contract import Reply
from trimq.protocols.rocketmq.grpc.wire import wire
from trimq.protocols.rocketmq.grpc.wire.enums import Code
from trimq.storage.guards.slow_disk import RECHECK_AFTER_MS

FIELDS = {"a": "pg", "b": "t", "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 1, "h": 0, "i": ""}
BATCH = write_batch([(0, b"one", b""), (0, b"two", b"")])


def is_ready(desk: Desk, reply: Reply) -> bool:
    """Tells whether the reply is ready, without a sync."""
    return reply.is_ready(desk.runner.passes.written, desk.runner.passes.durable)


def begin(desk: Desk, body: bytes = b"one", code: int = 310, **fields: Any) -> Reply:
    """Writes a message that the disk does not sync."""
    reply = desk.broker.begin(code, {**FIELDS, **fields}, body)
    assert reply is not None
    desk.runner.end_pass()
    return reply


def hang(desk: Desk, milliseconds: int) -> None:
    """Advances time while the disk does not sync."""
    until_ms = desk.liveness.now_ms() + milliseconds
    while desk.liveness.step(until_ms):
        desk.runner.end_pass()


class Watcher:
    def __init__(self, woken: list[int]) -> None:
        self.woken = woken

    def reply_resolved(self, reply: Reply) -> None:
        self.woken.append(1)


def prepared(**settings: Any) -> Desk:
    desk = Desk(**settings)
    assert desk.broker.send("t", b"before").code == 0
    return desk


@pytest.mark.parametrize(("code", "fields", "body", "stored"), [
    (310, {}, b"one", [b"one"]),
    (320, {"m": True}, BATCH, [b"one", b"two"]),
])  # fmt: skip
def test_a_send_with_a_hanging_sync_is_answered_in_time(
    code: int, fields: Any, body: bytes, stored: list[bytes]
) -> None:
    desk = prepared()
    reply = begin(desk, body, code, **fields)
    hang(desk, 4999)
    assert not is_ready(desk, reply)
    hang(desk, 1)
    assert is_ready(desk, reply)
    answer = read_frame(reply.take())
    assert (answer.code, answer.remark) == (10, None)
    assert (answer.fields["queueId"], answer.fields["queueOffset"]) == ("0", "1")
    assert len(answer.fields["msgId"].split(",")) == len(stored)
    desk.runner.settle()
    assert bodies_of(desk.cut_power().broker.pull("t")) == [b"before", *stored]


def test_a_watcher_of_the_reply_is_notified() -> None:
    desk = prepared(flush_timeout_ms=100)
    woken = []
    begin(desk).watcher = Watcher(woken)
    hang(desk, 100)
    assert woken == [1]


def test_each_has_its_own_time() -> None:
    desk = prepared(flush_timeout_ms=100)
    first = begin(desk)
    hang(desk, 60)
    second = begin(desk, b"two")
    hang(desk, 40)
    assert (is_ready(desk, first), is_ready(desk, second)) == (True, False)
    hang(desk, 60)
    assert read_frame(second.take()).code == 10


def test_a_message_synced_in_time_is_answered_once_as_usual() -> None:
    desk = prepared(flush_timeout_ms=100)
    reply = begin(desk)
    woken = []
    reply.watcher = Watcher(woken)
    hang(desk, 99)
    assert desk.take(reply).code == 0
    hang(desk, 1000)
    assert woken == []


def test_a_repeated_message_gets_the_same_flush_timeout_as_the_first() -> None:
    desk = prepared(flush_timeout_ms=100, remembered_ids=10)
    unique = "UNIQ_KEY\x01ABC\x02"
    first = begin(desk, i=unique)
    again = begin(desk, i=unique)
    hang(desk, 100)
    assert read_frame(first.take()).fields == read_frame(again.take()).fields
    desk.runner.settle()
    assert desk.broker.send("t", b"one", properties=unique).code == 0
    assert bodies_of(desk.broker.pull("t")) == [b"before", b"one"]


def test_a_send_over_grpc_is_answered_as_by_apache_rocketmqs_proxy() -> None:
    grpc = GrpcDesk(flush_timeout_ms=100)
    grpc.make_topic("t")
    producer = grpc.client()
    reply = producer.begin("SendMessage", wire.SendMessageRequest(messages=[message("t", b"one")]))
    grpc.desk.runner.end_pass()
    hang(grpc.desk, 99)
    assert not is_ready(grpc.desk, reply)
    hang(grpc.desk, 1)
    answer = wire.SendMessageResponse.FromString(bytes(reply.take()[0]))
    assert answer.status.code == answer.entries[0].status.code == Code.MASTER_PERSISTENCE_TIMEOUT
    assert answer.entries[0].status.message == "send message failed, sendStatus=FLUSH_DISK_TIMEOUT"
    assert answer.entries[0].message_id == ""
    grpc.desk.runner.settle()
    assert bodies_of(grpc.desk.broker.pull("t")) == [b"one"]


@pytest.mark.parametrize(("code", "fields", "body"), [(310, {}, b"one"), (320, {"m": True}, BATCH)])
def test_sends_are_refused_as_busy_after_a_second_as_by_apache_rocketmq(code: int, fields: Any, body: bytes) -> None:
    desk = prepared()
    first = begin(desk)
    hang(desk, desk.settings.rocketmq.busy_after_ms * 5 // 4 + RECHECK_AFTER_MS)
    refused = begin(desk, body, code, **fields)
    assert is_ready(desk, refused)
    answer = read_frame(refused.take())
    assert (answer.code, answer.remark) == (2, "[PC_SYNCHRONIZED]broker busy, start flow control for a while")
    assert not is_ready(desk, first)
    desk.runner.settle()
    assert desk.take(first).code == 0
    assert desk.broker.send("t", b"two").code == 0
    assert bodies_of(desk.broker.pull("t")) == [b"before", b"one", b"two"]


def test_a_send_over_grpc_is_refused_as_busy() -> None:
    grpc = GrpcDesk(busy_after_ms=400)
    grpc.make_topic("t")
    producer = grpc.client()
    producer.begin("SendMessage", wire.SendMessageRequest(messages=[message("t", b"one")]))
    grpc.desk.runner.end_pass()
    hang(grpc.desk, 500 + RECHECK_AFTER_MS)
    answer = producer.call("SendMessage", messages=[message("t", b"two")])
    assert answer.status.code == Code.TOO_MANY_REQUESTS
    assert answer.status.message == "[PC_SYNCHRONIZED]broker busy, start flow control for a while"
