"""Deduplication: a message sent again with the same id is stored once, if this is switched on."""

from __future__ import annotations

from typing import Any

import pytest
from protocols.rocketmq.grpc.grpc_desk import GrpcDesk, message
from protocols.rocketmq.rocketmq_desk import NOW_MS, Desk, bodies_of, units_of

from trimq.formats.rocketmq_unit.batch_body import write_batch
from trimq.protocols.rocketmq.grpc.wire.enums import Code, MessageType
from trimq.wire.remoting import Command

ID = "UNIQ_KEY\x017F000001\x02"


def place(answer: Command) -> tuple[int, str | None, str | None, str | None]:
    fields = answer.fields
    return answer.code, fields.get("msgId"), fields.get("queueId"), fields.get("queueOffset")


def test_both_succeed_and_one_is_stored() -> None:
    desk = Desk(remembered_ids=10)
    first = desk.broker.send("t", b"one", properties=ID)
    again = desk.connect().send("t", b"one", queue=2, properties=ID)
    assert first.code == 0
    assert place(again) == place(first)
    assert desk.broker.send("t", b"other", properties="UNIQ_KEY\x01X\x02").code == 0
    assert bodies_of(desk.broker.pull("t")) == [b"one", b"other"]
    assert desk.broker.pull("t", queue=2).code == 19


def test_without_being_asked_both_are_stored() -> None:
    desk = Desk()
    desk.broker.send("t", b"one", properties=ID)
    desk.broker.send("t", b"one", properties=ID)
    assert bodies_of(desk.broker.pull("t")) == [b"one", b"one"]


def test_one_that_is_not_on_disk_yet_is_waited_for() -> None:
    desk = Desk(remembered_ids=10)
    desk.broker.send("t", b"before")
    fields = {"a": "pg", "b": "t", "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 1, "h": 0, "i": ID}
    first, again = desk.broker.begin(310, fields, b"one"), desk.broker.begin(310, fields, b"one")
    assert first is not None
    assert again is not None
    assert (
        place(desk.take(first))
        == place(desk.take(again))
        == (0, place(desk.broker.send("t", properties=ID))[1], "0", "1")
    )


def test_one_that_was_refused_may_come_again() -> None:
    desk = Desk(remembered_ids=10)
    desk.broker.send("t", b"before")
    desk.fail_writes()
    assert desk.broker.send("t", b"one", properties=ID).code != 0
    desk.files.before = lambda operation, name: None
    assert desk.broker.send("t", b"one", properties=ID).code == 0
    assert bodies_of(desk.broker.pull("t")) == [b"before", b"one"]


def test_it_is_known_after_a_restart_too() -> None:
    desk = Desk(remembered_ids=10)
    first = desk.broker.send("t", b"one", properties=ID)
    desk = desk.restart()
    assert place(desk.broker.send("t", b"one", properties=ID)) == place(first)
    assert bodies_of(desk.broker.pull("t")) == [b"one"]


@pytest.mark.parametrize(
    "wish", ["DELAY\x013\x02", "TIMER_DELAY_MS\x0160000\x02", "TRAN_MSG\x01true\x02PGROUP\x01pg\x02"]
)
def test_one_that_waits_in_a_topic_of_the_brokers_own_is_known_after_a_restart(wish: str) -> None:
    desk = Desk(remembered_ids=10)
    desk.broker.send("t", b"before", queue=2)
    first = desk.broker.send("t", b"one", queue=2, properties=ID + wish)
    assert desk.broker.send("u", b"one", queue=2, properties=ID + wish).code == 0
    desk = desk.restart()
    again = desk.broker.send("t", b"one", queue=1, properties=ID + wish)
    assert place(again) == place(first)
    assert again.fields.get("recallHandle") == first.fields.get("recallHandle")
    desk.advance(60_000)
    assert len(units_of(desk.broker.pull("t", queue=2))) == 1 + ("TRAN_MSG" not in wish)
    assert desk.broker.pull("t", queue=1).code == 19


def test_one_that_was_taken_back_is_known_by_its_own_place() -> None:
    desk = Desk(remembered_ids=10)
    properties = f"{ID}TIMER_DELAY_SEC\x015\x02"
    first = desk.broker.send("t", b"one", properties=properties)
    handle = first.fields["recallHandle"]
    assert desk.broker.ask(370, {"producerGroup": "p", "topic": "t", "recallHandle": handle}).code == 0
    assert place(desk.restart().broker.send("t", b"one", properties=properties)) == place(first)


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("wish", ["", "DELAY\x011\x02"])
def test_a_message_sent_to_a_deleted_topic_is_new_to_the_next_topic_of_that_name(restarts: bool, wish: str) -> None:
    desk = Desk(remembered_ids=10)
    desk.broker.send("t", b"old", properties=ID + wish)
    assert desk.broker.ask(215, {"topic": "t"}).code == 0
    desk.advance(10)
    if restarts:
        desk = desk.restart()
    assert desk.broker.send("t", b"new", properties=ID + wish).code == 0
    desk.advance(1000)
    assert b"new" in bodies_of(desk.broker.pull("t"))


def test_topics_and_retries_are_distinguished() -> None:
    desk = Desk(remembered_ids=10)
    desk.broker.send("t", b"one", properties=ID)
    assert desk.broker.send("u", b"one", properties=ID).code == 0
    assert bodies_of(desk.broker.pull("u")) == [b"one"]
    for _ in range(2):
        assert desk.broker.send("%RETRY%g", b"again", properties=ID).code == 0
    assert len(bodies_of(desk.broker.pull("%RETRY%g"))) == 2


def test_a_delayed_one_keeps_its_handle() -> None:
    desk = Desk(remembered_ids=10)
    properties = f"{ID}TIMER_DELAY_SEC\x015\x02"
    handles = [desk.broker.send("t", properties=properties).fields["recallHandle"] for _ in range(2)]
    assert handles[0] == handles[1]
    desk.advance(6000)
    assert len(bodies_of(desk.broker.pull("t"))) == 1


def test_so_many_are_remembered() -> None:
    desk = Desk(remembered_ids=2)
    for number in range(4):
        desk.broker.send("t", properties=f"UNIQ_KEY\x01{number}\x02")
    assert len(desk.doors._services.sending.sent_ids._sent) == 2


def batch(*messages: tuple[bytes, str]) -> bytes:
    return write_batch([(0, body, f"UNIQ_KEY\x01{id}\x02".encode() if id else b"") for body, id in messages])


def send_batch(desk: Desk, body: bytes, queue: int = 0) -> Command:
    fields = {"a": "pg", "b": "t", "c": "TBW102", "d": 4, "e": queue, "f": 0, "g": 1, "h": 0, "i": "", "m": True}
    return desk.connect().ask(320, fields, body)


def test_a_batch_that_comes_again_is_answered_as_it_was() -> None:
    desk = Desk(remembered_ids=10)
    body = batch((b"one", "A"), (b"two", "B"))
    first = send_batch(desk, body)
    assert first.code == 0
    assert place(send_batch(desk, body, queue=1)) == place(first)
    again = desk.restart()
    assert place(send_batch(again, body)) == place(first)
    assert bodies_of(again.broker.pull("t")) == [b"one", b"two"]


def test_of_a_batch_only_the_new_messages_are_stored() -> None:
    desk = Desk(remembered_ids=10)
    one = desk.broker.send("t", b"one", properties="UNIQ_KEY\x01A\x02")
    mixed = send_batch(desk, batch((b"nameless", ""), (b"one", "A"), (b"two", "B"), (b"two", "B"), (b"nameless", "")))
    ids = mixed.fields["msgId"].split(",")
    assert (len(ids), ids[1], ids[2]) == (5, one.fields["msgId"], ids[3])
    assert bodies_of(desk.broker.pull("t")) == [b"one", b"nameless", b"two", b"nameless"]


def test_without_being_asked_batches_are_stored_again() -> None:
    desk = Desk()
    for _ in range(2):
        assert send_batch(desk, batch((b"one", "A"), (b"one", "A"))).code == 0
    assert bodies_of(desk.broker.pull("t")) == [b"one"] * 4


def test_a_message_repeated_over_grpc_is_stored_once_after_either_kind_of_send() -> None:
    grpc = GrpcDesk(remembered_ids=10)
    grpc.make_topic("t")
    producer = grpc.client()
    first = producer.send(message("t", b"one", message_id="A")).entries[0]
    again = producer.send(message("t", b"one", message_id="A")).entries[0]
    assert (again.message_id, again.offset, again.status.code) == ("A", first.offset, Code.OK)
    assert grpc.desk.broker.send("t", b"one", properties="UNIQ_KEY\x01A\x02").fields["queueOffset"] == str(first.offset)
    producer.send(message("t", b"two", message_id="B"), message("t", b"two", message_id="B"))
    assert bodies_of(grpc.desk.broker.pull("t")) == [b"one", b"two"]


@pytest.mark.parametrize(
    ("kind", "wish"), [("DELAY", {"due_ms": NOW_MS + 60_000}), ("TRANSACTION", {"kind": MessageType.TRANSACTION})]
)
def test_a_pending_message_is_known_over_grpc_after_a_restart(kind: str, wish: dict[str, Any]) -> None:
    grpc = GrpcDesk(remembered_ids=10)
    grpc.make_topic("t", kind)
    first = grpc.client().send(message("t", b"one", message_id="A", **wish)).entries[0]
    grpc.client().send(message("t", b"two", message_id="B", **wish))
    again = grpc.restart().client().send(message("t", b"one", message_id="A", **wish)).entries[0]
    assert again == first
