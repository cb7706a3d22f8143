"""ReceiveMessage over gRPC: available messages, long polls, filters, ordered queues, and refusals."""

from __future__ import annotations

import hashlib
from contextlib import suppress
from typing import Any

import pytest
from protocols.rocketmq.grpc.grpc_desk import GrpcDesk, Phone, bodies_of, handle_of, message, messages_of

from trimq.protocols.contract import Reply
from trimq.protocols.rocketmq.grpc.wire import wire
from trimq.protocols.rocketmq.grpc.wire.enums import ClientType, Code, DigestType, MessageType

SECOND = 1000


def made(bodies: tuple[bytes, ...] = (), kind: str = "NORMAL", queues: int = 1, **group: Any) -> tuple[GrpcDesk, Phone]:
    desk = GrpcDesk()
    desk.make_topic("t", kind, queues)
    desk.make_group("g", **group)
    phone = desk.client()
    phone.consume("g", "t")
    for body in bodies:
        phone.send(message("t", body))
    return desk, phone


def begin(phone: Phone, **fields: Any) -> Reply:
    return phone.begin("ReceiveMessage", phone.receiving("t", **fields))


def outcome(phone: Phone, reply: Reply) -> list[Any]:
    """The code, the number of messages, and the kind of the last part."""
    status, *messages, end = phone.take("ReceiveMessage", reply)
    return [status.status.code, len(messages), end.WhichOneof("content")]


def test_a_response_has_the_status_then_the_messages_then_the_time() -> None:
    desk, phone = made((b"0", b"1"))
    first, *messages, last = phone.take("ReceiveMessage", begin(phone))
    assert first.status.code == Code.OK
    assert [each.message.body for each in messages] == [b"0", b"1"]
    now_ms = desk.desk.message_time.now_ms()
    assert (last.delivery_timestamp.seconds, last.delivery_timestamp.nanos) == (
        now_ms // 1000,
        now_ms % 1000 * 1_000_000,
    )


def test_a_message_is_shown_with_digest_and_receipt_and_attempt() -> None:
    desk, phone = made()
    sent = message("t", b"hello", keys=["k1", "k2"], tag="A", properties={"x": "y"})
    phone.send(sent)
    (shown,) = phone.receive("t")
    system = shown.system_properties
    assert (system.body_digest.type, system.body_digest.checksum) == (
        DigestType.MD5,
        hashlib.md5(b"hello").hexdigest().upper(),
    )
    assert (system.message_id, system.delivery_attempt) == (sent.system_properties.message_id, 1)
    assert (list(system.keys), system.tag, dict(shown.user_properties)) == (["k1", "k2"], "A", {"x": "y"})
    assert system.receipt_handle.startswith(f"0 {desk.desk.message_time.now_ms()} 10000 0 0 broker-a 0 0 ")


def test_an_unacked_message_is_redelivered_as_the_next_attempt() -> None:
    desk, phone = made((b"0", b"1"))
    first, _ = phone.receive("t")
    assert phone.ack("t", first).status.code == Code.OK
    desk.desk.advance(10 * SECOND)
    (again,) = phone.receive("t")
    assert (again.body, again.system_properties.delivery_attempt, again.topic.name) == (b"1", 2, "t")
    assert phone.ack("t", again).status.code == Code.OK
    desk.desk.advance(60 * SECOND)
    assert phone.receive("t") == []


def test_a_long_poll_gets_an_arriving_message_or_the_status_at_its_deadline() -> None:
    desk, phone = made()
    reply = begin(phone, wait_ms=20_000)
    assert not desk.desk.is_ready(reply)
    phone.send(message("t", b"0"))
    assert outcome(phone, reply) == [Code.OK, 1, "delivery_timestamp"]
    late = begin(phone, wait_ms=7000)
    desk.desk.let_pass(6999)
    assert not desk.desk.is_ready(late)
    desk.desk.let_pass(1)
    assert outcome(phone, late) == [Code.MESSAGE_NOT_FOUND, 0, "delivery_timestamp"]


@pytest.mark.parametrize("wait_ms", [20_000, None])
def test_a_long_poll_is_answered_before_the_client_times_out(wait_ms: int | None) -> None:
    desk, phone = made()
    request = phone.receiving("t", wait_ms=wait_ms or 1)
    if wait_ms is None:
        request.ClearField("long_polling_timeout")
    reply = phone.begin("ReceiveMessage", request, remaining_ms=8000)
    desk.desk.let_pass(6499)
    assert not desk.desk.is_ready(reply)
    desk.desk.let_pass(1)
    assert outcome(phone, reply)[0] == Code.MESSAGE_NOT_FOUND


def test_a_long_poll_is_refused_over_the_limit_or_when_its_topic_is_deleted() -> None:
    desk, phone = made()
    turned_away, waiting = begin(phone), begin(phone)
    assert turned_away.on_reject_over_limit is not None
    turned_away.on_reject_over_limit()
    assert outcome(phone, turned_away)[:2] == [Code.TOO_MANY_REQUESTS, 0]
    assert desk.desk.broker.ask(215, {"topic": "t"}).code == 0
    assert outcome(phone, waiting)[:2] == [Code.TOPIC_NOT_FOUND, 0]


def test_a_client_that_goes_while_it_waits_takes_nothing() -> None:
    _, phone = made()
    reply = begin(phone)
    assert reply.on_abandon is not None
    reply.on_abandon()
    phone.send(message("t", b"0"))
    assert bodies_of(phone.receive("t")) == [b"0"]


def test_only_matching_messages_are_received() -> None:
    _, phone = made()
    for body, tag in ((b"0", "A"), (b"1", "B"), (b"2", "")):
        phone.send(message("t", body, **({"tag": tag} if tag else {}), properties={"n": body.decode()}))
    assert bodies_of(phone.receive("t", "g1", expression="A || B")) == [b"0", b"1"]
    assert bodies_of(phone.receive("t", "g2", expression="n > 0", kind=2)) == [b"1", b"2"]


@pytest.mark.parametrize("expression", [" ", "|| ||"])
def test_an_expression_without_tags_matches_nothing(expression: str) -> None:
    _, phone = made((b"0",))
    assert phone.receive("t", expression=expression) == []


def test_a_tag_with_the_same_hash_is_not_the_same_tag() -> None:
    _, phone = made()
    phone.send(message("t", b"0", tag="Aa"))
    phone.send(message("t", b"1", tag="BB"))
    assert bodies_of(phone.receive("t", expression="BB")) == [b"1"]


def test_every_queue_is_looked_into() -> None:
    _, phone = made(tuple(b"%d" % number for number in range(20)), queues=4)
    found = phone.receive("t")
    assert len(found) == 20
    assert len({each.system_properties.queue_id for each in found}) > 1


def test_an_ordered_group_waits_for_messages_in_flight() -> None:
    desk, phone = made(kind="FIFO", consumeMessageOrderly=True)
    for body in (b"0", b"1", b"2"):
        phone.send(message("t", body, MessageType.FIFO, message_group="G"))
    first = phone.receive("t", count=2, attempt_id="a1")
    assert bodies_of(first) == [b"0", b"1"]
    assert [each.system_properties.message_group for each in first] == ["G", "G"]
    assert phone.receive("t", attempt_id="a2") == []
    again = phone.receive("t", count=2, attempt_id="a1")
    assert bodies_of(again) == [b"0", b"1"]
    assert phone.ack("t", again[0]).status.code == Code.OK
    assert phone.receive("t", attempt_id="a3") == []
    assert phone.change("t", handle_of(again[1]), SECOND).status.code == Code.OK
    desk.desk.advance(SECOND)
    rest = phone.receive("t", attempt_id="a4")
    assert [(each.body, each.system_properties.delivery_attempt) for each in rest] == [(b"1", 2), (b"2", 1)]


@pytest.mark.parametrize(
    ("fields", "remaining_ms", "code"),
    [
        ({"topic": "a b"}, 30_000, Code.ILLEGAL_TOPIC),
        ({"topic": ""}, 30_000, Code.ILLEGAL_TOPIC),
        ({"topic": "nowhere"}, 30_000, Code.INTERNAL_SERVER_ERROR),
        ({"group": "bad group$"}, 30_000, Code.ILLEGAL_CONSUMER_GROUP),
        ({"invisible_ms": 9999}, 30_000, Code.ILLEGAL_INVISIBLE_TIME),
        ({"invisible_ms": None}, 30_000, Code.ILLEGAL_INVISIBLE_TIME),
        ({"invisible_ms": 13 * 3600 * SECOND}, 30_000, Code.ILLEGAL_INVISIBLE_TIME),
        ({"expression": "a > > 1", "kind": 2}, 30_000, Code.INTERNAL_SERVER_ERROR),
        ({"expression": "", "kind": 2}, 30_000, Code.ILLEGAL_FILTER_EXPRESSION),
        ({"expression": "||"}, 30_000, Code.ILLEGAL_FILTER_EXPRESSION),
        ({}, 2000, Code.ILLEGAL_POLLING_TIME),
    ],
)
def test_an_invalid_request_is_refused_with_its_code(fields: dict[str, Any], remaining_ms: int, code: Code) -> None:
    _, phone = made((b"0",))
    request = phone.receiving(**{"topic": "t", **fields})
    reply = phone.begin("ReceiveMessage", request, remaining_ms)
    assert outcome(phone, reply) == [code, 0, "delivery_timestamp"]
    assert bodies_of(phone.receive("t")) == [b"0"]


def test_a_request_over_the_maximum_count_gets_the_maximum() -> None:
    _, phone = made(tuple(b"%d" % number for number in range(40)))
    assert len(phone.receive("t", count=100)) == 32
    assert len(phone.receive("t", count=33)) == 8


def test_the_lease_of_a_client_without_settings_is_not_renewed() -> None:
    desk, phone = made((b"0",))
    assert bodies_of(desk.client("stranger").receive("t", auto_renew=True)) == [b"0"]
    desk.desk.advance(59 * SECOND)
    assert phone.receive("t") == []
    desk.desk.advance(SECOND)
    assert bodies_of(phone.receive("t")) == [b"0"]


def test_a_client_without_an_id_receives_nothing() -> None:
    desk, _ = made((b"0",))
    without_id = desk.client("")
    answers = without_id.take("ReceiveMessage", begin(without_id))
    assert [each.status.code for each in answers] == [Code.CLIENT_ID_REQUIRED]


@pytest.mark.parametrize(
    ("version", "code"), [("5.0.2", Code.BAD_REQUEST), ("", Code.BAD_REQUEST), ("5.2.0", Code.ILLEGAL_POLLING_TIME)]
)
def test_old_clients_get_a_code_that_they_know_for_a_deadline_that_is_too_near(version: str, code: Code) -> None:
    desk, _ = made((b"0",))
    phone = desk.client("old", **{"x-mq-client-version": version})
    reply = phone.begin("ReceiveMessage", phone.receiving("t"), 2000)
    assert outcome(phone, reply) == [code, 0, "delivery_timestamp"]


def test_a_deadline_that_is_near_shortens_the_wait() -> None:
    desk, phone = made()
    reply = phone.begin("ReceiveMessage", phone.receiving("t", wait_ms=20_000), 6000)
    desk.desk.let_pass(6000)
    assert outcome(phone, reply) == [Code.MESSAGE_NOT_FOUND, 0, "delivery_timestamp"]


def test_a_lease_that_cannot_be_written_is_not_delivered() -> None:
    desk, phone = made((b"0",))
    desk.desk.fail_writes()
    answers = phone.take("ReceiveMessage", begin(phone))
    assert (answers[0].status.code, messages_of(answers)) == (Code.INTERNAL_SERVER_ERROR, [])


# -- long polls


def test_leases_of_a_push_consumer_are_renewed_while_it_is_connected() -> None:
    desk, phone = made((b"0",))
    phone.consume("g", "t", kind=ClientType.PUSH_CONSUMER)
    (received,) = phone.receive("t", invisible_ms=None, auto_renew=True)
    desk.desk.advance(3600 * SECOND)
    assert phone.receive("t") == []
    assert phone.ack("t", received).status.code == Code.OK
    desk.desk.advance(3600 * SECOND)
    assert phone.receive("t") == []


def test_messages_of_a_lost_client_are_redelivered_soon() -> None:
    desk, phone = made((b"0",))
    other = desk.client("other")
    other.consume("g", "t", kind=ClientType.PUSH_CONSUMER)
    other.receive("t", auto_renew=True)
    other.call("NotifyClientTermination")
    desk.desk.advance(SECOND)
    assert bodies_of(phone.receive("t")) == [b"0"]


def test_nothing_is_renewed_for_ever() -> None:
    desk, phone = made((b"0",))
    phone.receive("t", auto_renew=True)
    desk.desk.advance(3 * 3600 * SECOND + 61 * SECOND)
    assert bodies_of(phone.receive("t")) == [b"0"]


def test_a_returned_message_is_not_renewed() -> None:
    desk, phone = made((b"0",))
    (received,) = phone.receive("t", auto_renew=True)
    assert phone.change("t", handle_of(received), 30 * SECOND).status.code == Code.OK
    desk.desk.advance(30 * SECOND)
    assert bodies_of(phone.receive("t")) == [b"0"]


def test_an_expired_message_is_not_received() -> None:
    desk, phone = made()
    phone.send(message("t", b"short", properties={"TRIMQ_TTL_MS": "100"}))
    phone.send(message("t", b"long"))
    phone.send(message("t", b"together", properties={"TRIMQ_TTL_MS": "100"}), message("t", b"and this"))
    desk.desk.advance(100)
    assert bodies_of(phone.receive("t")) == [b"long", b"and this"]
    refused = phone.send(message("t", b"never", properties={"TRIMQ_TTL_MS": "0"}))
    assert refused.status.code == Code.BAD_REQUEST


def test_a_forbidden_topic_is_not_received_by_the_group() -> None:
    desk, phone = made((b"0",))
    assert desk.desk.broker.ask(353, {"group": "g", "topic": "t", "readable": False}).code == 0
    (first, *_) = phone.take("ReceiveMessage", begin(phone))
    assert first.status.code == Code.FORBIDDEN


def test_a_repeated_ack_waits_for_the_first_to_be_durable() -> None:
    desk = GrpcDesk()
    desk.make_topic("t")
    desk.make_group("g")
    client = desk.client()
    client.send(message("t", b"1", message_id="A"))
    (received,) = client.receive("t", invisible_ms=20_000)
    entry = wire.AckMessageEntry(message_id="A", receipt_handle=received.system_properties.receipt_handle)
    group, topic = wire.Resource(name="g"), wire.Resource(name="t")
    request = wire.AckMessageRequest(group=group, topic=topic, entries=[entry, entry])
    passes = desk.desk.runner.passes
    first, second = client.begin("AckMessage", request), client.begin("AckMessage", request)
    assert not first.is_ready(passes.written, passes.durable)
    assert not second.is_ready(passes.written, passes.durable)
    desk.desk.fail_writes("taken")
    desk.desk.runner.settle()
    for reply in (first, second):
        acked = wire.AckMessageResponse.FromString(reply.take()[0])
        assert [each.status.code for each in acked.entries] == [Code.INTERNAL_SERVER_ERROR] * 2
    desk.desk.files.before = lambda operation, name: None
    again = client.begin("AckMessage", request)
    desk.desk.runner.settle()
    assert wire.AckMessageResponse.FromString(again.take()[0]).status.code == Code.OK
    later = client.begin("AckMessage", request)
    assert later.is_ready(passes.written, passes.durable)


@pytest.mark.parametrize(("kind", "expression"), [(1, "*"), (1, "A"), (2, "TAGS = 'A'")])
def test_a_damaged_message_blocks_no_other_with_any_filter(kind: int, expression: str) -> None:
    desk, phone = made()
    for number in range(6):
        phone.send(message("t", b"body-%d" % number, message_id=f"M{number}", tag="A"))
    desk = desk.restart()
    log = desk.desk.memory.open("store/commitlog/" + desk.desk.memory.names("store/commitlog")[0])
    log.write(bytes(log.read(0, log.size())).index(b"body-3"), [b"BODY"])
    phone = desk.client()
    found: set[bytes] = set()
    for _ in range(10):
        with suppress(AssertionError):  # the damage is reported
            found.update(bodies_of(phone.receive("t", expression=expression, kind=kind)))
        desk.desk.advance(11 * SECOND)
    assert found == {b"body-%d" % number for number in (0, 1, 2, 4, 5)}


def test_an_offset_reset_of_a_fifo_group_delivers_from_the_new_offset_at_once() -> None:
    desk, phone = made(kind="FIFO", consumeMessageOrderly=True)
    for number in range(10):
        phone.send(message("t", b"%d" % number, MessageType.FIFO, message_group="G"))
    assert bodies_of(phone.receive("t", count=3)) == [b"0", b"1", b"2"]
    given = {"topic": "t", "group": "g", "timestamp": 0, "isForce": True, "queueId": 0, "offset": 5}
    assert desk.desk.broker.ask(222, given).code == 0
    assert bodies_of(phone.receive("t", count=3)) == [b"5", b"6", b"7"]
