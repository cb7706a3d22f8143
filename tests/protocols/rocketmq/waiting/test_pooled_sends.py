"""Sends with flush = pooled: acknowledged at once, readable when they are committed to the page cache."""

from __future__ import annotations

from typing import Any

import pytest
from doubles import AsyncPassRunner
from protocols.rocketmq.grpc.grpc_desk import GrpcDesk, message
from protocols.rocketmq.rocketmq_desk import Desk, bodies_of, read_frame

from trimq.formats.rocketmq_unit.batch_body import write_batch
from trimq.protocols.contract import Reply
from trimq.protocols.rocketmq.grpc.wire import wire

FIELDS = {"a": "pg", "b": "t", "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 1, "h": 0, "i": ""}
BATCH = write_batch([(0, b"one", b""), (0, b"two", b"")])


class PooledDesk(Desk):
    make_runner = AsyncPassRunner
    flush = "pooled"

    def settle(self) -> None:
        assert isinstance(self.runner, AsyncPassRunner)
        for _ in range(5):  # one round can cause another
            super().settle()
            while self.runner.time.step(self.runner.time.now_ms() + 1000):
                super().settle()


def prepared(**settings: Any) -> PooledDesk:
    desk = PooledDesk(**settings)
    assert desk.broker.send("t", b"before").code == 0
    commit(desk)
    return desk


def commit(desk: Desk) -> None:
    """Lets the commit interval pass."""
    until_ms = desk.liveness.now_ms() + desk.settings.rocketmq.commit_interval_ms
    while desk.liveness.step(until_ms):
        desk.runner.end_pass()


def is_acknowledged(reply: Reply | None) -> bool:
    return reply is not None and reply.is_ready(0, 0)


@pytest.mark.parametrize(("code", "fields", "body", "stored"), [
    (310, {}, b"one", [b"one"]),
    (320, {"m": True}, BATCH, [b"one", b"two"]),
])  # fmt: skip
def test_a_send_is_acknowledged_before_it_is_written(code: int, fields: Any, body: bytes, stored: list[bytes]) -> None:
    desk = prepared()
    written = desk.runner.passes.written
    reply = desk.broker.begin(code, {**FIELDS, **fields}, body)
    assert is_acknowledged(reply)
    assert reply is not None
    answer = read_frame(reply.take())
    assert (answer.code, answer.fields["queueOffset"]) == (0, "1")
    assert len(answer.fields["msgId"].split(",")) == len(stored)
    desk.runner.end_pass()
    assert desk.runner.passes.written == written
    assert bodies_of(desk.broker.pull("t")) == [b"before"]
    commit(desk)
    assert bodies_of(desk.broker.pull("t")) == [b"before", *stored]


def test_a_held_pull_is_answered_when_the_message_is_committed() -> None:
    desk = prepared()
    desk.broker.pull("t")  # makes the group
    fields = desk.broker.pull_fields("t", 1, sysFlag=6, suspendTimeoutMillis=15_000)
    pull = desk.connect().begin(11, fields)
    assert pull is not None
    desk.broker.begin(310, FIELDS, b"one")
    desk.runner.end_pass()
    assert not pull.is_ready(desk.runner.passes.written, desk.runner.passes.durable)
    commit(desk)
    assert bodies_of(desk.take(pull)) == [b"one"]


def test_a_repeated_message_is_acknowledged_at_once_too() -> None:
    desk = prepared(remembered_ids=10)
    unique = {**FIELDS, "i": "UNIQ_KEY\x01ABC\x02"}
    first, again = desk.broker.begin(310, unique, b"one"), desk.broker.begin(310, unique, b"one")
    assert is_acknowledged(first)
    assert is_acknowledged(again)
    commit(desk)
    assert bodies_of(desk.broker.pull("t")) == [b"before", b"one"]


def test_a_send_over_grpc_is_acknowledged_before_it_is_written() -> None:
    grpc = GrpcDesk(PooledDesk())
    grpc.make_topic("t")
    written = grpc.desk.runner.passes.written
    reply = grpc.client().begin("SendMessage", wire.SendMessageRequest(messages=[message("t", b"one")]))
    assert is_acknowledged(reply)
    grpc.desk.runner.end_pass()
    assert grpc.desk.runner.passes.written == written
    commit(grpc.desk)
    assert bodies_of(grpc.desk.broker.pull("t")) == [b"one"]


def test_a_killed_process_loses_what_was_not_committed_a_power_cut_what_was_not_synced() -> None:
    for has_committed, kept_after_kill in ((False, [b"before"]), (True, [b"before", b"one"])):
        for crash, kept in ((PooledDesk.kill, kept_after_kill), (PooledDesk.cut_power, [b"before"])):
            desk = prepared()
            desk.settle()
            assert is_acknowledged(desk.broker.begin(310, FIELDS, b"one"))
            desk.runner.end_pass()
            if has_committed:
                commit(desk)
            assert bodies_of(crash(desk).broker.pull("t")) == kept


def test_a_clean_stop_loses_nothing() -> None:
    desk = prepared()
    assert is_acknowledged(desk.broker.begin(310, FIELDS, b"one"))
    assert bodies_of(desk.restart().cut_power().broker.pull("t")) == [b"before", b"one"]


def test_delayed_messages_retries_and_transactions_work_with_a_pool() -> None:
    desk = prepared()
    assert is_acknowledged(desk.broker.begin(310, {**FIELDS, "i": "DELAY\x011\x02"}, b"later"))
    commit(desk)
    assert bodies_of(desk.broker.pull("t")) == [b"before"]
    desk.advance(1100)
    commit(desk)
    assert bodies_of(desk.broker.pull("t")) == [b"before", b"later"]
