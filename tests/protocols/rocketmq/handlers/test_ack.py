"""Receipts over remoting: acknowledgements, changed invisible times, and invalid receipts."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from protocols.rocketmq.handlers.test_pop import SECOND, made, pop
from protocols.rocketmq.rocketmq_desk import Desk, bodies_of, units_of

from trimq.formats.rocketmq_unit.properties import read_properties
from trimq.wire.remoting import Command

ACK, CHANGE, BATCH = 200051, 200053, 200151


def receipts(popped: Command) -> list[dict[str, Any]]:
    """Fields that acknowledge each message, built as Java's client builds them."""
    fields = popped.fields
    starts = {tuple(each.split(" ")[:2]): each.split(" ")[2] for each in fields["startOffsetInfo"].split(";")}
    found = []
    for unit in units_of(popped):
        queue, offset = unit.queue_id, unit.queue_offset
        start = starts.get(("0", str(queue)))
        text = (
            f"{start} {fields['popTime']} {fields['invisibleTime']} {fields['reviveQid']} 0 broker-a {queue} {offset}"
        )
        text = read_properties(unit.properties).get("POP_CK", text)
        topic = "%RETRY%g_t" if text.split(" ")[4] == "1" else "t"
        found.append({"consumerGroup": "g", "topic": topic, "queueId": queue, "offset": offset, "extraInfo": text})
    return found


def test_an_acknowledged_message_is_not_redelivered() -> None:
    desk = made(1, (b"0", b"1"))
    first, _ = receipts(pop(desk.broker))
    assert desk.broker.ask(ACK, first).code == 0
    assert desk.broker.ask(ACK, first).code == 0  # a second acknowledgement is not an error
    desk.advance(10 * SECOND)
    again = pop(desk.broker)
    assert bodies_of(again) == [b"1"]
    assert desk.broker.ask(ACK, receipts(again)[0]).code == 0
    desk.advance(60 * SECOND)
    assert pop(desk.broker).code == 210


def test_a_longer_time_has_a_receipt_of_its_own() -> None:
    desk = made(1, (b"0",))
    (receipt,) = receipts(pop(desk.broker))
    desk.advance(9 * SECOND)
    changed = desk.broker.ask(CHANGE, {**receipt, "invisibleTime": 60 * SECOND})
    assert (changed.code, changed.fields["invisibleTime"]) == (0, "60000")
    assert changed.fields["popTime"] == str(desk.message_time.now_ms())
    desk.advance(59 * SECOND)
    assert pop(desk.broker).code == 210
    stale = desk.broker.ask(CHANGE, {**receipt, "invisibleTime": 1})
    assert (stale.code, stale.fields["popTime"]) == (208, "0")
    fields = changed.fields
    text = f"0 {fields['popTime']} {fields['invisibleTime']} {fields['reviveQid']} 0 broker-a 0 0"
    assert desk.broker.ask(ACK, {**receipt, "extraInfo": text}).code == 0
    desk.advance(60 * SECOND)
    assert pop(desk.broker).code == 210


def test_a_message_may_come_back_sooner() -> None:
    desk = made(1, (b"0",))
    (receipt,) = receipts(pop(desk.broker))
    assert desk.broker.ask(CHANGE, {**receipt, "invisibleTime": SECOND}).code == 0
    desk.advance(SECOND)
    assert bodies_of(pop(desk.broker)) == [b"0"]


@pytest.mark.parametrize("as_numbers", [False, True])
def test_many_are_acknowledged_at_once(as_numbers: bool) -> None:
    desk = made(1, tuple(b"%d" % number for number in range(10)))
    popped = pop(desk.broker)
    bits = bytes([0b10111111, 0b01])  # all but the seventh and the last message
    entry = {"c": "g", "t": "t", "r": "0", "so": 0, "q": 0, "rq": 0, "pt": int(popped.fields["popTime"]), "it": 10000}
    signed = [each - 256 if each > 127 else each for each in bits]
    entry["b"] = signed if as_numbers else base64.b64encode(bits).decode()
    assert desk.broker.ask(BATCH, body={"brokerName": "broker-a", "acks": [entry]}).code == 0
    desk.advance(10 * SECOND)
    assert bodies_of(pop(desk.broker)) == [b"6", b"9"]


@pytest.mark.parametrize(
    "body",
    [
        b"zz",
        {"acks": [{}]},
        {"acks": [{"c": "g", "t": "t", "r": "0", "so": 0, "q": 0, "pt": 1, "b": "*"}]},
        {"acks": [{"c": "g", "t": "t", "r": "0", "so": 0, "q": 0, "pt": 1, "b": [1.5]}]},
        {"acks": [{"c": "g", "t": "t", "r": "0", "so": 0, "q": 0, "pt": 1, "b": "A" * 4000}]},
        {"acks": [{"c": "g", "t": "t", "r": "0", "so": "x", "q": 0, "pt": 1, "b": "AQ=="}]},
    ],
)
def test_a_batch_that_is_none_is_refused(body: Any) -> None:
    desk = made(1, (b"0",))
    pop(desk.broker)
    assert desk.broker.ask(BATCH, body=body).code in (1, 29)
    desk.advance(10 * SECOND)
    assert bodies_of(pop(desk.broker)) == [b"0"]


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"offset": 99}, 208),
        ({"queueId": 9}, 13),
        ({"topic": "nowhere"}, 17),
        ({"extraInfo": "zz"}, 1),
        ({"extraInfo": "0 1 2 3 7 broker-a 0 0"}, 1),
        ({"extraInfo": "0 -1 2 3 0 broker-a 0 0"}, 1),
    ],
)
@pytest.mark.parametrize("code_asked", [ACK, CHANGE])
def test_a_receipt_that_is_none_is_refused(code_asked: int, changes: dict[str, Any], code: int) -> None:
    desk = made(1, (b"0",))
    (receipt,) = receipts(pop(desk.broker))
    assert desk.broker.ask(code_asked, {**receipt, "invisibleTime": 5, **changes}).code == code
    assert desk.broker.ask(ACK, receipt).code == 0


def test_receipts_outlive_a_restart() -> None:
    desk = made(1, (b"0", b"1"))
    first, _ = receipts(pop(desk.broker))
    again: Desk = desk.restart()
    assert again.broker.ask(ACK, first).code == 0
    again.advance(10 * SECOND)
    assert bodies_of(pop(again.broker)) == [b"1"]


def test_topic_and_queue_of_an_ack_are_checked_before_its_receipt() -> None:
    desk = made(1, (b"a",))
    fields = {"consumerGroup": "g", "topic": "t", "queueId": 0, "extraInfo": "none", "offset": 0}
    assert desk.broker.ask(200051, {**fields, "topic": "none"}).code == 17
    assert desk.broker.ask(200051, {**fields, "queueId": 7}).code == 13
    assert desk.broker.ask(200051, fields).code == 1


def test_an_ack_at_the_end_of_the_queue_is_no_error() -> None:
    desk = made(1, (b"a",))
    fields = {"consumerGroup": "g", "topic": "t", "queueId": 0, "extraInfo": "0 0 60000 0 0 b 0 1"}
    assert desk.broker.ask(200051, {**fields, "offset": 1}).code == 0
    assert desk.broker.ask(200051, {**fields, "offset": 2}).code == 208
