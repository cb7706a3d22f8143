"""Delivery time-outs: consumers that hold messages for too long, as in RabbitMQ 4.3.6."""

from __future__ import annotations

import pytest
from protocols.amqp.desk import Desk

from trimq.protocols.amqp import methods


def let_time_out(desk: Desk) -> None:
    while desk.message_time.step(desk.message_time.now_ms() + 60_000):
        desk.settle()
    desk.settle()


def test_a_slow_consumer_without_the_cancel_capability_loses_its_channel() -> None:
    desk = Desk(consumer_timeout_ms=60_000)
    publisher = desk.client(1)
    publisher.declare(1, "q")
    client = desk.client(1, 2, capabilities={})
    client.tell(1, methods.BasicConsume(queue="q"))
    publisher.publish(1, "q", b"1")
    desk.settle()
    assert client.bodies() == [b"1"]
    let_time_out(desk)
    (close,) = client.heard()
    assert close == methods.ChannelClose(
        406,
        "PRECONDITION_FAILED - delivery acknowledgement on channel 1 timed out. Timeout value used: 60000 ms. This "
        "timeout value can be configured, see consumers doc guide to learn more",
        0,
        0,
    )
    declared = client.ask(2, methods.QueueDeclare(queue="q", is_passive=True))
    assert (declared.message_count, declared.consumer_count) == (1, 0)


def test_a_slow_consumer_that_cancelled_loses_its_channel() -> None:
    desk = Desk(consumer_timeout_ms=60_000)
    publisher = desk.client(1)
    publisher.declare(1, "q")
    client = desk.client(1)
    client.ask(1, methods.BasicConsume(queue="q", consumer_tag="c"))
    publisher.publish(1, "q", b"1")
    desk.settle()
    assert client.bodies() == [b"1"]
    client.ask(1, methods.BasicCancel("c"))
    let_time_out(desk)
    (close,) = client.heard()
    assert (close.reply_code, close.class_id) == (406, 0)


@pytest.mark.parametrize("is_multiple", [False, True])
def test_a_late_acknowledgement_is_ignored_after_the_consumer_was_cancelled(is_multiple: bool) -> None:
    desk = Desk(consumer_timeout_ms=60_000)
    publisher = desk.client(1)
    publisher.declare(1, "q")
    client = desk.client(1)
    client.ask(1, methods.BasicConsume(queue="q", consumer_tag="c"))
    publisher.publish(1, "q", b"1", b"2")
    desk.settle()
    client.heard()
    let_time_out(desk)
    assert client.heard() == [methods.BasicCancel("c", no_wait=True)]
    client.tell(1, methods.BasicAck(2, is_multiple))
    client.tell(1, methods.BasicReject(1) if not is_multiple else methods.BasicRecoverAsync(True))
    got = client.ask(1, methods.BasicGet(queue="q"))
    assert (got.body, got.method.is_redelivered, got.method.message_count) == (b"1", True, 1)
    client.tell(1, methods.BasicAck(2))
    (close,) = client.heard()
    assert close.reply_code == 406
