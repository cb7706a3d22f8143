"""The AMQP front-end on a whole core: contents, time and order of its answers."""

from __future__ import annotations

from typing import Any

import pytest
from protocols.amqp.desk import PERSISTENT, Client, Content, Desk
from protocols.amqp.wires import command, publish

from trimq.config import Storage
from trimq.core.security.access import Right
from trimq.formats.amqp_content.property_list import read_property, write_properties
from trimq.protocols.amqp import methods
from trimq.protocols.amqp.wire.codes import Code
from trimq.protocols.amqp.wire.frames import HEARTBEAT_FRAME
from trimq.storage.guards.slow_disk import RECHECK_AFTER_MS
from trimq.storage.io.files import Memory, Space


def consumer(desk: Desk, queue: str = "q", **flags: Any) -> Client:
    client = desk.client(1)
    prefetch = flags.pop("prefetch", 0)
    client.ask(1, methods.BasicQos(prefetch_count=prefetch))
    client.tell(1, methods.BasicConsume(queue=queue, consumer_tag="t", **flags))
    return client


def pass_time(desk: Desk, milliseconds: int) -> None:
    until_ms = desk.liveness.now_ms() + milliseconds
    while desk.liveness.step(until_ms):
        desk.settle()
    desk.settle()


# -- the handshake


def test_a_login_is_refused_at_once_to_a_client_that_understands() -> None:
    desk = Desk()
    client = Client(desk)
    client.feed(b"AMQP\0\0\x09\x01")
    client.heard()
    properties = {"capabilities": {"authentication_failure_close": True}}
    client.tell(0, methods.ConnectionStartOk(properties, "PLAIN", b"\0guest\0wrong"))
    (close,) = client.heard()
    assert (close.reply_code, close.class_id, client.is_closed) == (403, 0, True)


def test_a_login_is_refused_silently_and_slowly_to_one_that_does_not() -> None:
    desk = Desk()
    client = Client(desk)
    client.feed(b"AMQP\0\0\x09\x01")
    client.heard()
    client.tell(0, methods.ConnectionStartOk({}, "PLAIN", b"\0guest\0wrong"))
    start_ms = desk.liveness.now_ms()
    while desk.liveness.step(start_ms + 2999):
        pass
    assert not client.is_aborted
    desk.liveness.step(start_ms + 3000)
    assert client.is_aborted
    assert client.heard() == []


def test_the_guest_user_may_connect_from_this_machine_only() -> None:
    desk = Desk()
    client = Client(desk, "10.0.0.9:4000")
    client.feed(b"AMQP\0\0\x09\x01")
    client.tell(0, methods.ConnectionStartOk({}, "PLAIN", b"\0guest\0guest"))
    client.heard()
    client.tell(0, methods.ConnectionTuneOk(1, 4096, 0))
    assert client.fault is not None


def test_a_handshake_that_takes_too_long_is_cut_off() -> None:
    desk = Desk(handshake_ms=500)
    slow, quick = Client(desk), desk.client(1)
    start_ms = desk.liveness.now_ms()
    while desk.liveness.step(start_ms + 500):
        pass
    assert slow.is_aborted
    assert not quick.is_aborted
    assert quick.may_be_silent


def test_a_wrong_header_is_answered_with_the_right_one() -> None:
    client = Client(Desk())
    client.feed(b"GET / HTTP/1.1")
    assert bytes(client.sent) == b"AMQP\0\0\x09\x01"


@pytest.mark.parametrize("vhost", ["nope", ""])
def test_a_virtual_host_that_does_not_exist_is_refused(vhost: str) -> None:
    client = Client(Desk())
    client.feed(b"AMQP\0\0\x09\x01")
    client.tell(0, methods.ConnectionStartOk({}, "PLAIN", b"\0guest\0guest"), methods.ConnectionTuneOk(9, 4096, 0))
    client.heard()
    client.tell(0, methods.ConnectionOpen(vhost))
    (close,) = client.heard()
    assert (close.reply_code, close.class_id, close.method_id) == (530, 10, 40)


def test_users_open_their_virtual_hosts_with_their_permissions() -> None:
    desk = Desk()
    access = desk.core.broker._access  # no API for it yet
    access.define_user("alice", "secret")
    access.grant(Right("alice", "shop", configure="^mine", write=".*", read="^mine"))
    desk.core.broker.namespaces.registry.define("shop")
    desk.settle()
    client = desk.client(1, user="alice", password="secret", vhost="shop")
    client.declare(1, "mine")
    refused = client.ask(1, methods.QueueDeclare(queue="yours"))
    assert (refused.reply_code, refused.class_id, refused.method_id) == (403, 50, 10)
    other = Client(desk)
    other.log_in(user="alice", password="secret", vhost="/")
    assert other.fault is not None


def test_a_silent_client_is_dropped_and_one_with_heartbeats_is_not() -> None:
    desk = Desk()
    silent, lively = desk.client(1, heartbeat=2), desk.client(1, heartbeat=2)
    start_ms = desk.liveness.now_ms()
    for second in range(1, 10):
        while desk.liveness.step(start_ms + second * 1000):
            pass
        lively.feed(HEARTBEAT_FRAME)
    assert silent.is_aborted
    assert not lively.is_aborted
    assert lively.sent.count(HEARTBEAT_FRAME) >= 8


# -- publishing


def test_a_confirm_waits_for_the_sync_and_covers_all_messages_at_once() -> None:
    desk = Desk()
    client = desk.client(1)
    client.declare(1, "q")
    client.ask(1, methods.ConfirmSelect())
    client.publish(1, "q", b"a", b"b", b"c", header=PERSISTENT)
    desk.end_pass()
    assert client.heard() == []
    desk.settle()
    assert client.heard() == [methods.BasicAck(3, True)]


def test_a_message_that_is_not_persistent_is_confirmed_when_written() -> None:
    desk = Desk()
    client = desk.client(1)
    client.declare(1, "q")
    client.ask(1, methods.ConfirmSelect())
    client.publish(1, "q", b"a")
    desk.end_pass()
    assert client.heard() == [methods.BasicAck(1, False)]


def test_a_return_is_sent_before_its_confirm() -> None:
    desk = Desk()
    client = desk.client(1)
    client.ask(1, methods.ConfirmSelect())
    client.publish(1, "nowhere", b"lost", is_mandatory=True, header=PERSISTENT)
    desk.settle()
    returned, confirmed = client.heard()
    assert returned == Content(methods.BasicReturn(Code.NO_ROUTE, "NO_ROUTE", "", "nowhere"), PERSISTENT, b"lost")
    assert confirmed == methods.BasicAck(1, False)


def test_unroutable_messages_of_a_batch_are_all_returned_before_their_confirm() -> None:
    desk = Desk()
    client = desk.client(1)
    client.ask(1, methods.ConfirmSelect())
    client.publish(1, "nowhere", b"first", is_mandatory=True)
    client.publish(1, "nowhere", b"a", b"bb", b"", is_mandatory=True, header=PERSISTENT)
    desk.settle()
    heard = client.heard()
    returned = [came.body if isinstance(came, Content) else came for came in heard]
    assert returned == [b"first", methods.BasicAck(1, False), b"a", b"bb", b"", methods.BasicAck(4, True)]


def test_a_nack_is_sent_before_a_confirm_that_spans_it_even_if_the_turn_ends_in_between() -> None:
    desk = Desk()
    client = desk.client(1)
    client.declare(1, "open")
    client.declare(1, "full", arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    client.publish(1, "full", b"x")
    client.ask(1, methods.ConfirmSelect())
    method = methods.BasicPublish(routing_key="open")
    headers = [write_properties(headers={"CC": [copy]}) for copy in ("nowhere", "full", "nowhere")]
    client.share = 1
    client.feed(b"".join(publish(1, method, b"x", header) for header in headers))
    desk.settle()
    desk.settle()
    assert client.heard() == [methods.BasicNack(2, False, False), methods.BasicAck(3, True)]


def test_a_message_that_cannot_be_stored_closes_its_channel_and_those_before_it_count() -> None:
    desk = Desk()
    client = desk.client(1)
    client.declare(1, "q")
    client.publish(1, "q", b"x")
    times = ["60000", "50000", "never", "40000"]
    method = methods.BasicPublish(routing_key="q")
    client.feed(b"".join(publish(1, method, b"x", write_properties(expiration=time)) for time in times))
    (close,) = client.heard()
    assert close.reply_code == 406
    desk.settle()
    assert desk.client(1).ask(1, methods.QueueDeclare(queue="q", is_passive=True)).message_count == 3


@pytest.mark.parametrize("arguments", [{}, {"x-max-length": 3}, {"x-max-length": 3, "x-overflow": "reject-publish"}])
def test_a_batch_of_messages_fills_every_queue_as_one_by_one(arguments: dict[str, Any]) -> None:
    desk = Desk()
    client = desk.client(1)
    for name in ("q", "r"):
        client.declare(1, name, arguments=arguments if name == "q" else {})
        client.ask(1, methods.QueueBind(queue=name, exchange="amq.fanout"))
    client.publish(1, "", b"the way is known from now on", exchange="amq.fanout")
    for name in ("q", "r"):
        client.ask(1, methods.QueuePurge(queue=name))
    client.ask(1, methods.ConfirmSelect())
    bodies = [b"%d" % number * (number + 1) for number in range(6)]
    client.publish(1, "", *bodies, exchange="amq.fanout", header=PERSISTENT)
    desk.settle()
    refused = {came.delivery_tag for came in client.heard() if isinstance(came, methods.BasicNack)}
    is_rejecting = "x-overflow" in arguments
    assert refused == ({4, 5, 6} if is_rejecting else set())
    kept = bodies if not arguments else bodies[:3] if is_rejecting else bodies[3:]
    for name, expected in (("q", kept), ("r", bodies)):
        client.tell(1, methods.BasicConsume(queue=name, no_ack=True, no_wait=True))
        desk.settle()
        assert client.bodies() == expected


def test_of_a_batch_with_a_refused_message_those_before_it_count() -> None:
    """A refusal closes the channel; the messages after it are ignored."""
    desk = Desk()
    client = desk.client(1)
    client.declare(1, "q")
    client.ask(1, methods.ConfirmSelect())
    claim = write_properties(user_id="bob")
    method = methods.BasicPublish(routing_key="q")
    sent = [publish(1, method, b"x", header) for header in (PERSISTENT, b"\0\0", PERSISTENT, claim, PERSISTENT)]
    client.feed(b"".join(sent))
    (close,) = client.heard()
    assert close.reply_code == 406
    desk.settle()
    assert client.heard() == []  # nothing is sent on a closed channel
    other = desk.client(1)
    assert other.ask(1, methods.QueueDeclare(queue="q", is_passive=True)).message_count == 3


def test_messages_of_two_kinds_in_a_batch_are_confirmed_each_in_its_time() -> None:
    desk = Desk()
    client = desk.client(1)
    client.declare(1, "q")
    client.ask(1, methods.ConfirmSelect())
    method = methods.BasicPublish(routing_key="q")
    client.feed(b"".join(publish(1, method, b"x", header) for header in (PERSISTENT, b"\0\0", PERSISTENT)))
    desk.end_pass()
    assert client.heard() == [methods.BasicAck(2, False)]
    desk.settle()
    assert client.heard() == [methods.BasicAck(3, True)]


def test_a_channel_that_its_client_closes_is_answered_first_and_confirms_no_more() -> None:
    desk = Desk()
    client = desk.client(1)
    client.declare(1, "q")
    client.ask(1, methods.ConfirmSelect())
    client.publish(1, "q", b"x", header=PERSISTENT)
    consume = methods.BasicConsume(queue="q", consumer_tag="t")
    client.tell(1, methods.QueueDeclare(queue="r", is_durable=True), consume, methods.ChannelClose(200, "bye"))
    desk.settle()
    declared, *rest = client.heard()
    assert declared == methods.QueueDeclareOk("r", 0, 0)
    assert rest[-1] == methods.ChannelCloseOk()
    other = desk.client(1)
    assert other.ask(1, methods.QueueDeclare(queue="q", is_passive=True)) == methods.QueueDeclareOk("q", 1, 0)


def test_an_error_within_a_batch_is_sent_after_the_confirms() -> None:
    desk = Desk()
    client = desk.client(1)
    client.ask(1, methods.ConfirmSelect())
    good, bad = methods.BasicPublish(routing_key="q"), methods.BasicPublish(routing_key="q", is_immediate=True)
    client.feed(publish(1, good, b"1") + publish(1, good, b"2") + publish(1, bad, b""))
    *confirms, close = client.heard()
    assert confirms == [methods.BasicAck(2, True)]
    assert close.reply_code == 540


def test_a_write_that_fails_is_nacked() -> None:
    desk = Desk()
    client = desk.client(1)
    client.declare(1, "q")
    client.ask(1, methods.ConfirmSelect())
    desk.files.room_bytes = 5
    client.publish(1, "q", b"a", header=PERSISTENT)
    desk.settle()
    assert client.heard() == [methods.BasicNack(1, False, False)]


def test_a_message_over_the_limit_closes_its_channel() -> None:
    desk = Desk(message_bytes=10)
    client = desk.client(1)
    client.publish(1, "q", b"x" * 11)
    (close,) = client.heard()
    assert (close.reply_code, close.class_id, close.method_id) == (406, 60, 40)
    client.tell(1, methods.ChannelCloseOk())
    assert client.ask(1, methods.ChannelOpen()) == methods.ChannelOpenOk()


def test_a_wrong_user_id_closes_the_channel() -> None:
    client = Desk().client(1)
    client.publish(1, "q", b"", header=write_properties(user_id="guest"))
    assert client.heard() == []
    client.publish(1, "q", b"", header=write_properties(user_id="bob"))
    (close,) = client.heard()
    assert close.reply_code == 406


def test_a_publisher_is_blocked_while_the_disk_is_full_and_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk()
    client = desk.client(1, heartbeat=2)
    client.declare(1, "q")
    client.ask(1, methods.ConfirmSelect())
    monkeypatch.setattr(desk.files, "space", lambda: Space(0, 1 << 40))
    pass_time(desk, 1000)  # the next check of the disk space
    client.sent.clear()
    client.publish(1, "q", b"a", b"b", header=PERSISTENT)
    assert client.heard() == [methods.ConnectionBlocked("low on disk")]
    assert client.is_held
    other = desk.client(1)
    assert other.ask(1, methods.BasicGet(queue="q")) == methods.BasicGetEmpty()
    for _ in range(10):
        pass_time(desk, 1000)
    assert not client.is_aborted  # the broker does not read from it, so no heartbeat is expected
    assert client.heard() == []
    monkeypatch.setattr(desk.files, "space", lambda: Space(1 << 39, 1 << 40))
    for _ in range(3):
        pass_time(desk, 1000)
    assert client.heard() == [methods.ConnectionUnblocked(), methods.BasicAck(2, True)]
    assert not client.is_held


def test_a_publisher_is_blocked_while_the_broker_uses_too_much_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk()
    client = desk.client(1)
    client.declare(1, "q")
    client.publish(1, "q", b"before", header=PERSISTENT)
    client.ask(1, methods.ConfirmSelect())
    monkeypatch.setattr(desk.files, "memory", lambda: Memory(61, 100))
    pass_time(desk, 1000)
    client.sent.clear()
    client.publish(1, "q", b"a", header=PERSISTENT)
    assert client.heard() == [methods.ConnectionBlocked("low on memory")]
    other = consumer(desk)
    desk.settle()
    assert other.bodies() == [b"before"]
    other.tell(1, methods.BasicAck(1))
    assert (client.is_held, other.is_held) == (True, False)
    monkeypatch.setattr(desk.files, "memory", lambda: Memory(57, 100))
    for _ in range(3):
        pass_time(desk, 1000)
    assert client.heard() == [methods.ConnectionUnblocked(), methods.BasicAck(1)]


def let_the_disk_hang(desk: Desk, milliseconds: int) -> None:
    until_ms = desk.liveness.now_ms() + milliseconds
    while desk.liveness.step(until_ms):
        desk.end_pass()


def test_a_publisher_is_blocked_while_the_disk_does_not_sync_and_loses_nothing() -> None:
    desk = Desk()
    client = desk.client(1)
    client.declare(1, "q")
    client.ask(1, methods.ConfirmSelect())
    other = consumer(desk)
    client.sent.clear()
    client.publish(1, "q", b"a", header=PERSISTENT)
    let_the_disk_hang(desk, desk.settings.storage.busy_after_ms * 5 // 4 + RECHECK_AFTER_MS)
    assert client.heard() == []
    client.publish(1, "q", b"b", header=PERSISTENT)
    assert client.heard() == [methods.ConnectionBlocked("disk does not sync")]
    assert (client.is_held, other.is_held) == (True, False)
    let_the_disk_hang(desk, 60_000)
    assert client.heard() == []
    for _ in range(3):
        pass_time(desk, 1000)
    assert client.heard() == [methods.BasicAck(1), methods.ConnectionUnblocked(), methods.BasicAck(2)]
    assert other.bodies() == [b"a", b"b"]
    assert not client.is_held


def test_a_direct_reply_is_blocked_while_the_broker_uses_too_much_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    desk = Desk()
    asking, answering = desk.client(1), desk.client(1)
    asking.ask(1, methods.BasicConsume(queue="amq.rabbitmq.reply-to", consumer_tag="t", no_ack=True))
    answering.declare(1, "questions")
    asking.publish(1, "questions", b"?", header=write_properties(reply_to="amq.rabbitmq.reply-to"))
    question = answering.ask(1, methods.BasicGet(queue="questions", no_ack=True))
    address = read_property(question.header, "reply_to")
    monkeypatch.setattr(desk.files, "memory", lambda: Memory(61, 100))
    pass_time(desk, 1000)
    answering.publish(1, address, b"!")
    assert answering.heard() == [methods.ConnectionBlocked("low on memory")]
    assert asking.heard() == []
    monkeypatch.setattr(desk.files, "memory", lambda: Memory(50, 100))
    for _ in range(3):
        pass_time(desk, 1000)
    assert answering.heard() == [methods.ConnectionUnblocked()]
    assert [content.body for content in asking.heard()] == [b"!"]


def test_clients_get_connection_close_when_the_broker_stops() -> None:
    client = Desk().client(1)
    (close,) = client.closing_parts()
    assert (close.reply_code, close.class_id) == (320, 0)


# -- consuming


def test_consume_ok_is_sent_before_the_first_delivery() -> None:
    desk = Desk()
    publisher = desk.client(1)
    publisher.declare(1, "q")
    publisher.publish(1, "q", b"a", header=PERSISTENT)
    desk.settle()
    client = consumer(desk)
    desk.settle()
    ok, delivery = client.heard()
    assert ok == methods.BasicConsumeOk("t")
    assert delivery == Content(methods.BasicDeliver("t", 1, False, "", "q"), PERSISTENT, b"a")


def test_nothing_is_delivered_before_it_is_durable() -> None:
    desk = Desk()
    client = desk.client(1)
    client.declare(1, "q")
    client.ask(1, methods.BasicConsume(queue="q"))
    client.publish(1, "q", b"a", header=PERSISTENT)
    desk.end_pass()
    assert client.heard() == []
    desk.settle()
    assert client.bodies() == [b"a"]


def test_a_channel_gets_its_own_published_messages() -> None:
    desk = Desk()
    client = desk.client(1)
    client.declare(1, "q")
    client.publish(1, "q", b"mine", header=PERSISTENT)
    client.tell(1, methods.BasicGet(queue="q", no_ack=True), methods.BasicGet(queue="q", no_ack=True))
    assert client.heard() == []
    assert client.is_held
    desk.settle()
    got, empty = client.heard()
    assert got == Content(methods.BasicGetOk(1, False, "", "q", 0), PERSISTENT, b"mine")
    assert empty == methods.BasicGetEmpty()


def test_a_cold_message_is_read_off_the_loop_for_basic_get() -> None:
    desk = Desk(storage=Storage(queue_memory_bytes=0))
    client = desk.client(1)
    client.declare(1, "q")
    client.publish(1, "q", b"old", header=PERSISTENT)
    desk.settle()
    desk.files.is_cold = True
    client.tell(1, methods.BasicGet(queue="q", no_ack=True), methods.BasicGet(queue="q", no_ack=True))
    assert (client.heard(), client.is_held) == ([], True)
    desk.settle()
    got, empty = client.heard()
    assert got == Content(methods.BasicGetOk(1, False, "", "q", 0), PERSISTENT, b"old")
    assert empty == methods.BasicGetEmpty()
    assert (desk.files.waits, client.is_held) == (0, False)


def test_a_client_that_leaves_while_its_message_is_read_leaves_it_in_the_queue() -> None:
    desk = Desk(storage=Storage(queue_memory_bytes=0))
    client = desk.client(1)
    client.declare(1, "q")
    client.publish(1, "q", b"old", header=PERSISTENT)
    desk.settle()
    desk.files.is_cold = True
    client.tell(1, methods.BasicGet(queue="q"))
    client.lose()
    desk.settle()
    assert desk.client(1).ask(1, methods.BasicGet(queue="q")).body == b"old"


def test_a_purge_drops_messages_published_before_it_and_not_after() -> None:
    desk = Desk()
    client = desk.client(1)
    client.declare(1, "q")
    client.publish(1, "q", b"before", header=PERSISTENT)
    client.tell(1, methods.QueuePurge(queue="q"))
    client.publish(1, "q", b"after", header=PERSISTENT)
    desk.settle()
    assert client.heard() == [methods.QueuePurgeOk(1)]
    assert client.ask(1, methods.BasicGet(queue="q", no_ack=True)).body == b"after"


def test_a_client_that_does_not_read_gets_deliveries_when_it_reads() -> None:
    desk = Desk()
    client = desk.client(1)
    client.declare(1, "q")
    client.ask(1, methods.BasicConsume(queue="q", no_ack=True))
    client.is_congested = True
    client.publish(1, "q", b"1")
    desk.settle()
    client.publish(1, "q", b"2")
    desk.settle()
    assert client.bodies() == [b"1"]  # its congestion was noticed only after this delivery
    client.relieve()
    desk.settle()
    assert client.bodies() == [b"2"]


def test_prefetch_pauses_deliveries_until_an_ack() -> None:
    desk = Desk()
    publisher = desk.client(1)
    publisher.declare(1, "q")
    publisher.publish(1, "q", b"1", b"2", b"3", b"4")
    desk.settle()
    client = consumer(desk, prefetch=2)
    desk.settle()
    assert client.bodies() == [b"1", b"2"]
    client.tell(1, methods.BasicAck(1), methods.BasicAck(2))
    desk.settle()
    assert client.bodies() == [b"3", b"4"]


@pytest.mark.parametrize(
    "settlement",
    [methods.BasicAck(3, True), methods.BasicNack(3, True, False), methods.BasicReject(1), methods.BasicAck(1)],
)
def test_a_channel_that_never_acknowledges_is_paused_until_it_does(settlement: methods.Method) -> None:
    desk = Desk(unacked_bytes=1000)
    publisher = desk.client(1)
    publisher.declare(1, "q")
    client = consumer(desk)
    desk.settle()
    client.heard()
    for number in range(5):
        publisher.publish(1, "q", b"%010d" % number)
        desk.settle()
    assert len(client.bodies()) == 3
    client.tell(1, settlement)
    desk.settle()
    assert client.bodies()
    client.tell(1, methods.BasicAck(0, True))
    desk.settle()
    client.tell(1, methods.BasicRecover(True))
    desk.settle()
    left = publisher.ask(1, methods.QueueDeclare(queue="q", is_passive=True))
    assert left.message_count == 0


def test_an_unknown_tag_closes_the_channel_but_the_acks_before_it_count() -> None:
    desk = Desk()
    publisher = desk.client(1)
    publisher.declare(1, "q")
    publisher.publish(1, "q", b"1", b"2", b"3")
    desk.settle()
    client = consumer(desk)
    desk.settle()
    client.heard()
    client.feed(b"".join(command(1, methods.BasicAck(tag)) for tag in (1, 2, 9, 3)))
    (close,) = client.heard()
    assert (close.reply_code, close.class_id, close.method_id) == (406, 60, 80)
    desk.settle()
    got = publisher.ask(1, methods.BasicGet(queue="q"))
    assert (got.body, got.method.is_redelivered, got.method.message_count) == (b"3", True, 0)


def test_a_lost_connection_requeues_its_unacked_messages() -> None:
    desk = Desk()
    publisher = desk.client(1)
    publisher.declare(1, "q")
    publisher.publish(1, "q", b"1", b"2")
    desk.settle()
    client = consumer(desk)
    desk.settle()
    assert client.bodies() == [b"1", b"2"]
    client.lose()
    desk.settle()
    bodies = [publisher.ask(1, methods.BasicGet(queue="q", no_ack=True)).body for _ in range(2)]
    assert bodies == [b"1", b"2"]


@pytest.mark.parametrize(
    ("kind", "expected"), [("quorum", [b"0", b"2", b"1", b"3"]), ("classic", [b"0", b"1", b"2", b"3"])]
)
def test_a_channel_that_ends_returns_the_messages_of_one_consumer_after_the_other(
    kind: str, expected: list[bytes]
) -> None:
    """The order of RabbitMQ's quorum queues; a classic queue keeps the original order."""
    client = Desk().client(1, 2)
    client.declare(1, "q", arguments={"x-queue-type": kind})
    for tag in ("second", "first"):
        client.ask(2, methods.BasicConsume(queue="q", consumer_tag=tag))
    for body in (b"0", b"1", b"2", b"3"):
        client.publish(1, "q", body)
        client.desk.settle()
    client.heard()
    client.ask(2, methods.ChannelClose())
    got = [client.ask(1, methods.BasicGet(queue="q", no_ack=True)).body for _ in expected]
    assert got == expected


@pytest.mark.parametrize(
    ("kind", "again", "dead"),
    [
        ("quorum", [b"1", b"3", b"0", b"2"], [b"3", b"2", b"1", b"0"]),
        ("classic", [b"0", b"1", b"2", b"3"], [b"1", b"3", b"0", b"2"]),
    ],
)
def test_messages_that_are_nacked_together_return_in_the_order_of_consumer_tags(
    kind: str, again: list[bytes], dead: list[bytes]
) -> None:
    """So do dead letters. What returns to a classic queue keeps the original order."""
    client = Desk().client(1, 2)
    client.declare(1, "dead")
    arguments = {"x-queue-type": kind, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    client.declare(1, "q", arguments=arguments)
    for tag in ("b", "a"):
        client.ask(2, methods.BasicConsume(queue="q", consumer_tag=tag))
    for body in (b"0", b"1", b"2", b"3"):
        client.publish(1, "q", body)
        client.desk.settle()
    client.heard()
    client.tell(2, methods.BasicNack(0, is_multiple=True, requeue=True))
    client.desk.settle()
    assert client.bodies() == again
    client.tell(2, methods.BasicNack(0, is_multiple=True, requeue=False))
    client.desk.settle()
    assert [client.ask(1, methods.BasicGet(queue="dead", no_ack=True)).body for _ in dead] == dead


def test_an_exclusive_queue_is_deleted_before_the_client_gets_close_ok() -> None:
    desk = Desk()
    owner, other = desk.client(1), desk.client(1)
    owner.declare(1, "own", is_durable=False, is_exclusive=True)
    owner.tell(0, methods.ConnectionClose(200, "bye"))
    assert owner.heard() == [methods.ConnectionCloseOk()]
    assert owner.is_closed
    assert other.ask(1, methods.QueueDeclare(queue="own", is_passive=True)).reply_code == 404


def test_consumers_are_cancelled_when_their_queue_is_deleted() -> None:
    desk = Desk()
    client, other = desk.client(1), desk.client(1)
    other.declare(1, "q")
    client.ask(1, methods.BasicConsume(queue="q", consumer_tag="t"))
    other.ask(1, methods.QueueDelete(queue="q"))
    assert client.heard() == [methods.BasicCancel("t", True)]
    other.declare(1, "q")
    assert client.ask(1, methods.BasicConsume(queue="q", consumer_tag="t")) == methods.BasicConsumeOk("t")


def test_a_consumer_that_is_cancelled_before_its_turn_never_consumes() -> None:
    desk = Desk()
    client, other = desk.client(1), desk.client(1)
    client.tell(
        1,
        methods.QueueDeclare(queue="q", is_durable=True),
        methods.BasicConsume(queue="q", consumer_tag="t"),
        methods.BasicCancel("t"),
        methods.BasicConsume(queue="amq.rabbitmq.reply-to", consumer_tag="r", no_ack=True),
        methods.BasicCancel("r"),
    )
    desk.settle()
    assert client.heard() == [
        methods.QueueDeclareOk("q", 0, 0),
        methods.BasicConsumeOk("t"),
        methods.BasicCancelOk("t"),
        methods.BasicConsumeOk("r"),
        methods.BasicCancelOk("r"),
    ]
    declared = other.ask(1, methods.QueueDeclare(queue="q", is_passive=True))
    assert declared.consumer_count == 0
    client.publish(1, "q", b"", header=write_properties(reply_to="amq.rabbitmq.reply-to"))
    (close,) = client.heard()
    assert close.reply_code == 406


def test_pipelined_methods_are_executed_in_order() -> None:
    desk = Desk()
    client = desk.client(1)
    declare = methods.QueueDeclare(queue="q", is_durable=True)
    client.tell(1, declare, methods.BasicConsume(queue="q", consumer_tag="t"), methods.QueueDelete(queue="q"))
    desk.settle()
    declared, consumed, *ended = client.heard()
    assert (declared, consumed) == (methods.QueueDeclareOk("q", 0, 0), methods.BasicConsumeOk("t"))
    assert methods.QueueDeleteOk(0) in ended
    assert methods.BasicCancel("t", True) in ended


# -- transactions and direct replies


def test_a_transaction_publishes_and_acknowledges_when_it_is_committed() -> None:
    desk = Desk()
    client, other = desk.client(1), desk.client(1)
    client.declare(1, "q")
    client.ask(1, methods.TxSelect())
    client.publish(1, "q", b"a", header=PERSISTENT)
    client.publish(1, "nowhere", b"b", is_mandatory=True)
    desk.settle()
    assert client.heard() == []
    assert other.ask(1, methods.BasicGet(queue="q")) == methods.BasicGetEmpty()
    client.tell(1, methods.TxCommit())
    desk.end_pass()
    (returned,) = client.heard()
    assert returned.body == b"b"
    desk.settle()
    assert client.heard() == [methods.TxCommitOk()]
    got = client.ask(1, methods.BasicGet(queue="q"))
    client.tell(1, methods.BasicAck(got.method.delivery_tag))
    client.ask(1, methods.TxRollback())
    client.ask(1, methods.ChannelClose())
    desk.settle()
    assert other.ask(1, methods.BasicGet(queue="q")).body == b"a"


def test_a_direct_reply_is_routed_between_channels() -> None:
    desk = Desk()
    asker, answerer = desk.client(1), desk.client(1)
    asker.declare(1, "questions")
    asker.ask(1, methods.BasicConsume(queue="amq.rabbitmq.reply-to", consumer_tag="r", no_ack=True))
    asker.publish(1, "questions", b"?", header=write_properties(reply_to="amq.rabbitmq.reply-to"))
    desk.settle()
    question = answerer.ask(1, methods.BasicGet(queue="questions", no_ack=True))
    address = read_property(question.header, "reply_to")
    assert isinstance(address, str)
    assert address.startswith("amq.rabbitmq.reply-to.")
    assert answerer.ask(1, methods.QueuePurge(queue=address)).message_count == 0
    answerer.publish(1, address, b"!")
    (answer,) = asker.heard()
    assert (answer.method.consumer_tag, answer.method.routing_key, answer.body) == ("r", address, b"!")
    asker.ask(1, methods.BasicCancel("r"))
    answerer.publish(1, address, b"late", is_mandatory=True)
    assert asker.heard() == answerer.heard() == []


# -- order and errors


def test_answers_of_one_channel_keep_their_order_and_others_do_not_wait() -> None:
    desk = Desk()
    client = desk.client(1, 2)
    client.tell(1, methods.QueueDeclare(queue="a", is_durable=True), methods.BasicQos())
    client.tell(2, methods.BasicQos())
    assert client.heard() == [methods.BasicQosOk()]
    desk.settle()
    assert client.heard() == [methods.QueueDeclareOk("a", 0, 0), methods.BasicQosOk()]


def test_a_method_with_no_wait_gets_no_answer() -> None:
    desk = Desk()
    client = desk.client(1)
    client.tell(
        1,
        methods.QueueDeclare(queue="q", no_wait=True),
        methods.ExchangeDeclare(exchange="e", type="fanout", no_wait=True),
        methods.QueueBind(queue="q", exchange="e", no_wait=True),
        methods.BasicConsume(queue="q", consumer_tag="t", no_wait=True),
        methods.BasicCancel("t", no_wait=True),
        methods.ConfirmSelect(no_wait=True),
        methods.QueuePurge(queue="q", no_wait=True),
        methods.QueueDelete(queue="q", no_wait=True),
        methods.ExchangeDelete(exchange="e", no_wait=True),
    )
    desk.settle()
    assert client.heard() == []


@pytest.mark.parametrize(
    ("method", "code"),
    [
        (methods.BasicQos(prefetch_size=1), 540),
        (methods.BasicRecover(requeue=False), 540),
        (methods.ChannelFlow(active=False), 540),
        (methods.QueueDeclareOk(), 503),
    ],
)
def test_some_refusals_end_the_connection(method: methods.Method, code: int) -> None:
    client = Desk().client(1)
    client.tell(1, method)
    (close,) = client.heard()
    assert (close.reply_code, (close.class_id, close.method_id)) == (code, method.class_and_method)
    assert client.is_closed


@pytest.mark.parametrize(
    "method",
    [
        methods.QueuePurge(),
        methods.BasicGet(),
        methods.BasicConsume(),
        methods.QueueBind(exchange="amq.direct"),
        methods.QueueDelete(),
    ],
)
def test_without_a_declared_queue_an_empty_name_means_none(method: methods.Method) -> None:
    assert Desk().client(1).ask(1, method).reply_code == 404


@pytest.mark.parametrize(("channel_prefetch", "expected"), [(False, 4), (True, 3)])
def test_a_global_prefetch_is_for_each_consumer_or_for_the_channel(channel_prefetch: bool, expected: int) -> None:
    desk = Desk(channel_prefetch=channel_prefetch)
    client = desk.client(1)
    for name in ("q", "r"):
        client.declare(1, name)
        client.publish(1, name, *[b"x"] * 10, header=PERSISTENT)
    client.ask(1, methods.BasicQos(prefetch_count=2))
    if channel_prefetch:
        client.ask(1, methods.BasicQos(prefetch_count=3, is_global=True))
    for name in ("q", "r"):
        client.tell(1, methods.BasicConsume(queue=name, consumer_tag=name))
    desk.settle()
    assert len(client.bodies()) == expected
    client.ask(1, methods.BasicGet(queue="q"))  # basic.get is neither limited by prefetch nor counted
    client.tell(1, methods.BasicAck(delivery_tag=1))
    desk.settle()
    assert len(client.bodies()) == 1


def test_a_raised_prefetch_takes_effect_at_once() -> None:
    desk = Desk(channel_prefetch=True)
    client = desk.client(1)
    client.declare(1, "q")
    client.publish(1, "q", *[b"x"] * 10, header=PERSISTENT)
    client.ask(1, methods.BasicQos(prefetch_count=1, is_global=True))
    client.tell(1, methods.BasicConsume(queue="q"))
    desk.settle()
    assert len(client.bodies()) == 1
    client.tell(1, methods.BasicQos(prefetch_count=4, is_global=True))
    desk.settle()
    assert len(client.bodies()) == 3


def test_an_invalid_publish_closes_a_transaction_at_once_and_nothing_of_it_counts() -> None:
    desk = Desk()
    client = desk.client(1, 2)
    client.declare(2, "q")
    client.publish(2, "q", b"taken", header=PERSISTENT)
    client.ask(1, methods.TxSelect())
    got = client.ask(1, methods.BasicGet(queue="q"))
    client.tell(1, methods.BasicAck(got.method.delivery_tag))
    client.publish(1, "q", b"before", header=PERSISTENT)
    client.publish(1, "q", b"wrong", exchange="nowhere")
    desk.settle()
    (closed,) = client.heard()
    assert closed.reply_code == Code.NOT_FOUND
    assert client.ask(2, methods.BasicGet(queue="q")).body == b"taken"
    assert client.ask(2, methods.BasicGet(queue="q")) == methods.BasicGetEmpty()


def test_a_transaction_routes_each_message_when_it_is_published() -> None:
    client = Desk().client(1, 2)
    for queue in ("early", "late", "gone"):
        client.declare(2, queue)
    client.ask(2, methods.ExchangeDeclare(exchange="x", type="fanout"))
    client.ask(2, methods.QueueBind(queue="early", exchange="x"))
    client.ask(1, methods.TxSelect())
    client.publish(1, "", b"bound", exchange="x", is_mandatory=True)
    client.publish(1, "gone", b"lost", is_mandatory=True)
    client.publish(1, "new", b"unroutable", is_mandatory=True)
    client.ask(2, methods.QueueUnbind(queue="early", exchange="x"))
    client.ask(2, methods.QueueBind(queue="late", exchange="x"))
    client.ask(2, methods.ExchangeDelete(exchange="x"))
    client.ask(2, methods.QueueDelete(queue="gone"))
    client.declare(2, "new")
    client.tell(1, methods.TxCommit())
    client.desk.settle()
    returned, ok = client.heard()
    assert (returned.body, ok) == (b"unroutable", methods.TxCommitOk())
    assert client.ask(2, methods.BasicGet(queue="early")).body == b"bound"
    assert client.ask(2, methods.BasicGet(queue="late")) == methods.BasicGetEmpty()
    assert client.ask(2, methods.BasicGet(queue="new")) == methods.BasicGetEmpty()


def test_recover_is_no_failed_delivery() -> None:
    desk = Desk()
    client = desk.client(1)
    client.declare(1, "q", arguments={"x-queue-type": "quorum"})
    client.publish(1, "q", b"m")
    client.ask(1, methods.BasicGet(queue="q"))
    client.ask(1, methods.BasicRecover(requeue=True))
    desk.settle()
    again = client.ask(1, methods.BasicGet(queue="q"))
    assert read_property(again.header, "headers") == {"x-acquired-count": 1}


@pytest.mark.parametrize("name", ["CC", "BCC"])
def test_nothing_of_a_transaction_is_published_if_a_copy_of_one_message_fails(name: str) -> None:
    client = Desk().client(1, 2)
    client.declare(1, "q")
    client.ask(1, methods.TxSelect())
    client.publish(1, "q", b"good", header=PERSISTENT)
    client.publish(1, "q", b"bad", header=write_properties(headers={name: "no list"}))
    closed = client.ask(1, methods.TxCommit())
    assert closed.reply_code == Code.PRECONDITION_FAILED
    assert client.ask(2, methods.BasicGet(queue="q")) == methods.BasicGetEmpty()


def test_a_commit_is_refused_if_a_full_queue_refuses_one_of_its_messages() -> None:
    desk = Desk()
    client = desk.client(1)
    client.declare(1, "q", arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    client.ask(1, methods.TxSelect())
    client.publish(1, "q", b"a", b"b", header=PERSISTENT)
    closed = client.ask(1, methods.TxCommit())
    assert closed.reply_code == Code.PRECONDITION_FAILED
    assert "partial tx completion" in closed.reply_text


def test_a_channel_that_never_acknowledges_is_paused_even_if_messages_are_empty() -> None:
    desk = Desk(unacked_bytes=1000)
    publisher = desk.client(1)
    publisher.declare(1, "q")
    client = consumer(desk)
    desk.settle()
    client.heard()
    for _ in range(5):
        publisher.publish(1, "q", b"")
        desk.settle()
    assert len(client.bodies()) == 3


def test_timed_out_messages_of_a_consumer_no_longer_count_for_its_channel() -> None:
    desk = Desk(unacked_bytes=1000, consumer_timeout_ms=60_000)
    publisher = desk.client(1)
    for name in ("slow", "quick"):
        publisher.declare(1, name)
    client = consumer(desk, "slow")
    client.tell(1, methods.BasicConsume(queue="quick", no_ack=True))
    desk.settle()
    publisher.publish(1, "slow", b"1", b"2", b"3")
    publisher.publish(1, "quick", b"a")
    desk.settle()
    client.heard()
    publisher.publish(1, "quick", b"b")
    desk.settle()
    assert client.bodies() == []
    while desk.message_time.step(desk.message_time.now_ms() + 60_000):
        desk.settle()
    desk.settle()
    assert client.bodies() == [b"b"]


# -- a queue that is due takes its turn before it is counted or taken from


VOLATILE = {"is_durable": False}


@pytest.mark.parametrize("flags", [{}, VOLATILE], ids=["durable", "volatile"])
@pytest.mark.parametrize("is_passive", [True, False])
def test_declare_ok_counts_what_is_left_after_overflow(flags: dict[str, Any], is_passive: bool) -> None:
    desk = Desk()
    client = desk.client(1)
    arguments = {"x-max-length": 2}
    client.declare(1, "q", arguments=arguments, **flags)
    for _ in range(3):
        client.publish(1, "q", *[b"%d" % number for number in range(5)], header=PERSISTENT)
        flags = {"is_durable": True, "is_passive": is_passive, "arguments": arguments, **flags}
        assert client.ask(1, methods.QueueDeclare(queue="q", **flags)).message_count == 2


def test_get_takes_the_newest_of_a_queue_for_one_message() -> None:
    desk = Desk()
    client = desk.client(1)
    client.declare(1, "q", arguments={"x-max-length": 1})
    client.publish(1, "q", b"old", b"new", header=PERSISTENT)
    assert client.ask(1, methods.BasicGet(queue="q", no_ack=True)).body == b"new"


@pytest.mark.parametrize("argument", ["x-max-length", "x-message-ttl"])
def test_a_queue_that_keeps_nothing_is_empty(argument: str) -> None:
    desk = Desk()
    client = desk.client(1)
    client.declare(1, "q", arguments={argument: 0})
    client.publish(1, "q", b"x", header=PERSISTENT)
    assert isinstance(client.ask(1, methods.BasicGet(queue="q", no_ack=True)), methods.BasicGetEmpty)
    client.publish(1, "q", b"x", header=PERSISTENT)
    assert client.ask(1, methods.QueueDeclare(queue="q", is_passive=True)).message_count == 0


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        (methods.BasicGet(queue="q", no_ack=True), methods.BasicGetEmpty()),
        (methods.QueueDeclare(queue="q", is_passive=True), methods.QueueDeclareOk("q", 0, 1)),
        (methods.QueuePurge(queue="q"), methods.QueuePurgeOk(0)),
        (methods.QueueDelete(queue="q", if_empty=True), methods.QueueDeleteOk(0)),
    ],
)
def test_a_consumer_that_waits_is_served_before(method: methods.Method, expected: methods.Method) -> None:
    desk = Desk()
    client = desk.client(1)
    client.declare(1, "q")
    waiting = consumer(desk)
    desk.settle()
    waiting.heard()
    client.publish(1, "q", b"x", header=PERSISTENT)
    assert client.ask(1, method) == expected
    assert waiting.bodies() == [b"x"]


def test_a_requeued_message_is_dropped_from_a_full_queue_before_the_next_get() -> None:
    desk = Desk()
    client = desk.client(1)
    client.declare(1, "q", arguments={"x-max-length": 1})
    client.publish(1, "q", b"old", header=PERSISTENT)
    got = client.ask(1, methods.BasicGet(queue="q"))
    client.publish(1, "q", b"new", header=PERSISTENT)
    desk.settle()
    client.tell(1, methods.BasicNack(got.method.delivery_tag, False, True), methods.BasicGet(queue="q", no_ack=True))
    desk.settle()
    assert client.bodies() == [b"new"]


def test_commands_behind_a_count_that_waits_keep_their_order() -> None:
    desk = Desk()
    client = desk.client(1)
    client.declare(1, "q", arguments={"x-max-length": 1})
    client.publish(1, "q", b"1", b"2", header=PERSISTENT)
    client.tell(
        1,
        methods.QueueDeclare(queue="q", is_passive=True),
        methods.QueueDelete(queue="q"),
        methods.QueueDeclare(queue="q", is_durable=True),
    )
    assert client.heard() == []
    desk.settle()
    expected = [methods.QueueDeclareOk("q", 1, 0), methods.QueueDeleteOk(1), methods.QueueDeclareOk("q", 0, 0)]
    assert client.heard() == expected


# -- the end of a queue


@pytest.mark.parametrize(
    "flags",
    [{"is_durable": False}, {"is_exclusive": True}, {"is_durable": False, "is_auto_delete": True}, {}],
    ids=["transient", "exclusive", "auto-delete", "durable"],
)
@pytest.mark.parametrize("is_by_connection", [False, True], ids=["deleted", "owner gone"])
def test_messages_of_a_queue_that_is_deleted_are_acked(flags: dict[str, Any], is_by_connection: bool) -> None:
    """The publisher has nothing to repeat: nobody waits for them any more."""
    desk = Desk()
    client, owner = desk.client(1), desk.client(1)
    owner.declare(1, "q", **flags)
    client.ask(1, methods.ConfirmSelect())
    client.publish(1, "q", b"1", b"2", header=PERSISTENT)
    desk.end_pass()
    client.publish(1, "q", b"3", header=PERSISTENT)
    if is_by_connection:
        owner.lose()
    else:
        owner.tell(1, methods.QueueDelete(queue="q"))
    desk.settle()
    confirms = client.heard()
    assert {type(confirm) for confirm in confirms} == {methods.BasicAck}
    assert confirms[-1].delivery_tag == 3


def test_a_passive_declare_prolongs_the_life_of_an_unused_queue() -> None:
    desk = Desk()
    client = desk.client(1)
    client.declare(1, "q", arguments={"x-expires": 1000})
    for _ in range(3):
        until_ms = desk.message_time.now_ms() + 600
        while desk.message_time.step(until_ms):
            desk.settle()
        assert client.ask(1, methods.QueueDeclare(queue="q", is_passive=True)).queue == "q"
    until_ms = desk.message_time.now_ms() + 1100
    while desk.message_time.step(until_ms):
        desk.settle()
    assert client.ask(1, methods.QueueDeclare(queue="q", is_passive=True)).reply_code == Code.NOT_FOUND


@pytest.mark.parametrize("is_durable", [True, False])
def test_consumers_of_the_connection_that_deletes_a_queue_are_cancelled_after_delete_ok(is_durable: bool) -> None:
    desk = Desk()
    client = desk.client(1, 2)
    client.declare(1, "q", is_durable=is_durable)
    client.ask(1, methods.BasicConsume(queue="q", consumer_tag="a"))
    client.ask(2, methods.BasicConsume(queue="q", consumer_tag="b"))
    client.tell(1, methods.QueueDelete(queue="q"))
    desk.settle()
    assert client.heard_by_channel() == [
        (1, methods.QueueDeleteOk(0)),
        (1, methods.BasicCancel("a", True)),
        (2, methods.BasicCancel("b", True)),
    ]
    client.declare(1, "q")
    client.ask(1, methods.BasicConsume(queue="q", consumer_tag="a"))
    client.tell(1, methods.QueueDelete(queue="q", no_wait=True))
    desk.settle()
    assert client.heard() == [methods.BasicCancel("a", True)]


def test_consumers_are_cancelled_although_the_channel_that_deletes_their_queue_closes() -> None:
    desk = Desk()
    client = desk.client(1, 2)
    client.declare(1, "q")
    client.ask(1, methods.BasicConsume(queue="q", consumer_tag="a"))
    client.ask(2, methods.BasicConsume(queue="q", consumer_tag="b"))
    client.tell(1, methods.QueueDelete(queue="q"), methods.BasicAck(7, False))
    desk.settle()
    other, (channel, close) = client.heard_by_channel()
    assert other == (2, methods.BasicCancel("b", True))
    assert (channel, close.reply_code) == (1, Code.PRECONDITION_FAILED)


# -- sizes before the login


@pytest.mark.parametrize(("size", "is_taken"), [(8192, True), (8193, False), (131_000, False)])
def test_a_frame_before_the_login_has_at_most_8192_bytes(size: int, is_taken: bool) -> None:
    desk = Desk()
    client = Client(desk)
    client.feed(b"AMQP\0\0\x09\x01")
    client.heard()
    start_ok = methods.ConnectionStartOk({"filler": ""}, "PLAIN", b"\0guest\0guest", "en_US")
    frame = command(0, start_ok)
    start_ok = methods.ConnectionStartOk({"filler": "x" * (size + 8 - len(frame))}, "PLAIN", b"\0guest\0guest", "en_US")
    frame = command(0, start_ok)
    assert len(frame) == size + 8
    client.feed(frame if is_taken else frame[:7])  # refused by its length, before it is received
    desk.settle()
    if is_taken:
        assert isinstance(client.heard()[0], methods.ConnectionTune)
    else:
        assert client.is_closed
        assert "frame_too_large" in str(client.fault)
