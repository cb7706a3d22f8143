"""Receipts over gRPC: acknowledged, prolonged, dead-lettered, expired, and invalid ones."""

from __future__ import annotations

from typing import Any

import pytest
from protocols.rocketmq import rocketmq_desk
from protocols.rocketmq.grpc.grpc_desk import GrpcDesk, Phone, bodies_of, handle_of
from protocols.rocketmq.grpc.handlers.test_receive import SECOND, made

from trimq.protocols.rocketmq.grpc.wire import wire
from trimq.protocols.rocketmq.grpc.wire.enums import Code


def acked(phone: Phone, *handles: str, topic: str = "t", group: str = "g") -> Any:
    entries = [wire.AckMessageEntry(message_id="x", receipt_handle=handle) for handle in handles]
    return phone.call("AckMessage", group=wire.Resource(name=group), topic=wire.Resource(name=topic), entries=entries)


def forwarded(phone: Phone, handle: str, topic: str = "t") -> Code:
    given = {"group": wire.Resource(name="g"), "topic": wire.Resource(name=topic), "receipt_handle": handle}
    answer = phone.call("ForwardMessageToDeadLetterQueue", **given, message_id="x", delivery_attempt=1)
    return Code(answer.status.code)


def test_each_entry_is_answered_and_the_whole_as_they_went() -> None:
    _, phone = made((b"0", b"1"))
    first, second = map(handle_of, phone.receive("t"))
    answer = acked(phone, first, second)
    assert answer.status.code == Code.OK
    assert [(each.status.code, each.receipt_handle) for each in answer.entries] == [(20000, first), (20000, second)]
    mixed = acked(phone, first, "zz")
    assert mixed.status.code == Code.MULTIPLE_RESULTS
    assert [each.status.code for each in mixed.entries] == [Code.OK, Code.INTERNAL_SERVER_ERROR]
    assert acked(phone).status.code == Code.INTERNAL_SERVER_ERROR


def test_an_expired_receipt_is_refused() -> None:
    desk, phone = made((b"0",))
    (received,) = phone.receive("t")
    desk.desk.advance(10 * SECOND)
    assert acked(phone, handle_of(received)).status.code == Code.INVALID_RECEIPT_HANDLE
    assert phone.change("t", handle_of(received), SECOND).status.code == Code.INVALID_RECEIPT_HANDLE
    assert forwarded(phone, handle_of(received)) == Code.INVALID_RECEIPT_HANDLE
    assert bodies_of(phone.receive("t")) == [b"0"]


def test_a_changed_time_comes_with_a_new_receipt() -> None:
    desk, phone = made((b"0",))
    (received,) = phone.receive("t")
    desk.desk.advance(9 * SECOND)
    changed = phone.change("t", handle_of(received), 60 * SECOND)
    assert changed.status.code == Code.OK
    desk.desk.advance(59 * SECOND)
    assert phone.receive("t") == []
    assert acked(phone, changed.receipt_handle).status.code == Code.OK
    desk.desk.advance(60 * SECOND)
    assert phone.receive("t") == []


def test_a_receipt_outlives_a_restart() -> None:
    desk, phone = made((b"0",))
    (received,) = phone.receive("t")
    again: GrpcDesk = desk.restart()
    phone = again.client()
    phone.consume("g", "t")
    assert acked(phone, handle_of(received)).status.code == Code.OK
    again.desk.advance(60 * SECOND)
    assert phone.receive("t") == []


def test_a_forwarded_message_is_in_the_dead_letter_topic() -> None:
    desk, phone = made((b"0",))
    (received,) = phone.receive("t")
    assert forwarded(phone, handle_of(received)) == Code.OK
    assert rocketmq_desk.bodies_of(desk.desk.broker.pull("%DLQ%g")) == [b"0"]
    desk.desk.advance(60 * SECOND)
    assert phone.receive("t") == []


def test_a_forwarded_message_is_not_lost_when_its_topic_is_refused() -> None:
    desk, phone = made((b"0",))
    (received,) = phone.receive("t")
    desk.desk.fail_writes("catalogue")
    assert forwarded(phone, handle_of(received)) == Code.INTERNAL_SERVER_ERROR
    desk.desk.files.before = lambda operation, name: None
    assert forwarded(phone, handle_of(received)) == Code.OK
    assert rocketmq_desk.bodies_of(desk.desk.broker.pull("%DLQ%g")) == [b"0"]


def test_a_message_delivered_too_often_is_dead_lettered_too() -> None:
    desk, phone = made((b"0",), retryMaxTimes=2)
    for attempt in (1, 2, 3):
        (received,) = phone.receive("t")
        assert received.system_properties.delivery_attempt == attempt
        phone.change("t", handle_of(received), SECOND)
        desk.desk.advance(SECOND)
    assert phone.receive("t") == []
    assert rocketmq_desk.bodies_of(desk.desk.broker.pull("%DLQ%g")) == [b"0"]


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"topic": "a b"}, Code.ILLEGAL_TOPIC),
        ({"topic": "nowhere"}, Code.INTERNAL_SERVER_ERROR),
        ({"group": "bad group$"}, Code.ILLEGAL_CONSUMER_GROUP),
    ],
)
def test_an_ack_with_an_invalid_topic_or_group_is_refused_with_its_code(changes: dict[str, str], code: Code) -> None:
    _, phone = made((b"0",))
    (received,) = phone.receive("t")
    given = {"topic": "t", "group": "g", **changes}
    assert acked(phone, handle_of(received), **given).status.code == code
    assert phone.change(given["topic"], handle_of(received), SECOND, given["group"]).status.code == code


def test_a_time_that_is_too_long_is_refused() -> None:
    _, phone = made((b"0",))
    (received,) = phone.receive("t")
    assert phone.change("t", handle_of(received), 13 * 3600 * SECOND).status.code == Code.ILLEGAL_INVISIBLE_TIME
    assert phone.change("t", "zz", SECOND).status.code == Code.INTERNAL_SERVER_ERROR
