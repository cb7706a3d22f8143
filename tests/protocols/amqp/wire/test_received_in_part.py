"""Memory limit of incomplete and waiting messages, over all connections: beyond it, a connection that sends a long
message is closed with an error; short messages pass."""

from __future__ import annotations

import pytest
from protocols.amqp.desk import PERSISTENT, Client, Desk
from protocols.amqp.test_front_end import pass_time
from protocols.amqp.wires import command, header_frame, publish

from trimq.protocols.amqp import methods
from trimq.protocols.amqp.wire.codes import Code
from trimq.protocols.amqp.wire.frames import BODY, frame
from trimq.storage.io.files import Space

MIB = 1 << 20
TO_Q = methods.BasicPublish(routing_key="q")
HALF = command(1, TO_Q) + header_frame(1, MIB) + frame(BODY, 1, bytes(30_000)) * 20


def feed(client: Client, data: bytes) -> None:
    """Feeds the bytes piece by piece and decodes after each piece, as a session does."""
    for at in range(0, len(data), 20_000):
        if not client.is_closed:
            client.feed(data[at : at + 20_000])


def held(desk: Desk) -> int:
    return desk.front_end._held_bytes.count


def desk_and_clients(count: int) -> tuple[Desk, list[Client]]:
    desk = Desk(received_bytes=MIB)
    clients = [desk.client(1) for _ in range(count)]
    clients[0].declare(1, "q")
    clients[0].heard()
    return desk, clients


def assert_closed(client: Client) -> None:
    (close,) = client.heard()
    assert isinstance(close, methods.ConnectionClose)
    assert (close.reply_code, client.is_closed) == (Code.RESOURCE_ERROR, True)
    assert "1048576 bytes allowed" in close.reply_text


def test_beyond_the_limit_a_long_message_closes_its_connection_and_short_ones_pass() -> None:
    desk, (first, second, third) = desk_and_clients(3)
    feed(first, HALF)
    feed(second, HALF)
    assert_closed(second)
    assert 600_002 <= held(desk) < 700_000, "a closed connection still holds memory"
    second.lose()
    desk.front_end._held_bytes.limit = 500_000
    feed(third, command(1, TO_Q) + header_frame(1, 50_000) + frame(BODY, 1, bytes(25_000)) * 2)
    feed(third, publish(1, TO_Q, b"short") * 10)
    assert third.ask(1, methods.QueueDeclare(queue="q", is_passive=True)).message_count == 11
    assert not first.is_closed
    for client in (first, third):
        client.lose()
    assert held(desk) == 0


def test_an_incomplete_frame_counts_like_a_message() -> None:
    desk = Desk(received_bytes=MIB, frame_max=4 * MIB)
    first, second = desk.client(1, frame_max=4 * MIB), desk.client(1, frame_max=4 * MIB)
    part = command(1, TO_Q) + header_frame(1, 3 * MIB) + frame(BODY, 1, bytes(3 * MIB))[: MIB - 1]
    feed(first, part)
    assert held(desk) >= MIB - 64 * 1024
    feed(second, part)
    feed(second, bytes(1000))
    assert_closed(second)
    first.lose()
    second.lose()
    assert held(desk) == 0


def test_a_grown_buffer_is_released_before_a_connection_is_closed() -> None:
    desk, (_, second) = desk_and_clients(2)
    feed(second, publish(1, TO_Q, bytes(120_000)) + publish(1, TO_Q, bytes(120_000)))
    assert held(desk) > 0
    desk.front_end._held_bytes.change(MIB)
    assert held(desk) > MIB
    feed(second, publish(1, TO_Q, b"in two pieces")[:-5])
    assert not second.is_closed
    feed(second, publish(1, TO_Q, b"in two pieces")[-5:])
    assert not second.is_closed
    assert held(desk) == MIB


def test_messages_of_an_uncommitted_transaction_are_counted() -> None:
    desk, (first,) = desk_and_clients(1)
    first.ask(1, methods.TxSelect())
    feed(first, publish(1, TO_Q, bytes(5000)) * 10)
    assert held(desk) == 10 * (5000 + 400 + 2)
    assert first.ask(1, methods.TxRollback()) == methods.TxRollbackOk()
    assert held(desk) == 0
    feed(first, publish(1, TO_Q, bytes(5000)) * 10)
    assert first.ask(1, methods.TxCommit()) == methods.TxCommitOk()
    assert held(desk) == 0
    feed(first, publish(1, TO_Q, bytes(5000)) * 15)
    assert first.ask(1, methods.ChannelClose()) == methods.ChannelCloseOk()
    assert held(desk) == 0


def test_a_transaction_without_end_closes_its_connection_beyond_the_limit() -> None:
    desk, (first, second) = desk_and_clients(2)
    first.ask(1, methods.TxSelect())
    feed(first, publish(1, TO_Q, b"") * 10_000)
    assert_closed(first)
    assert held(desk) < MIB + 1000
    first.lose()
    assert held(desk) == 0
    second.publish(1, "q", b"goes on")
    assert second.ask(1, methods.BasicGet(queue="q", no_ack=True)).body == b"goes on"


def test_messages_that_wait_for_disk_space_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    desk, clients = desk_and_clients(4)
    monkeypatch.setattr(desk.files, "space", lambda: Space(0, 1 << 40))
    pass_time(desk, 1000)
    for client in clients:
        client.sent.clear()
        feed(client, publish(1, TO_Q, bytes(400_000), PERSISTENT))
    blocked, refused = clients[:2], clients[2:]
    assert all(client.heard() == [methods.ConnectionBlocked("low on disk")] for client in blocked)
    assert all(client.is_closed for client in refused)
    for client in refused:
        client.lose()
    assert 800_000 < held(desk) < MIB
    monkeypatch.setattr(desk.files, "space", lambda: Space(1 << 39, 1 << 40))
    for _ in range(3):
        pass_time(desk, 1000)
    assert all(client.heard() == [methods.ConnectionUnblocked()] for client in blocked)
    for client in blocked:
        client.lose()
    assert held(desk) == 0


def test_a_message_in_the_smallest_frames_takes_little_more_than_its_size() -> None:
    _, (client,) = desk_and_clients(1)
    feed(client, command(1, TO_Q) + header_frame(1, 30_000))
    for _ in range(100):
        feed(client, frame(BODY, 1, b"") * 1000 + frame(BODY, 1, b"xy") * 100)
    content = client._conversation._connection._channels[1].content
    assert content is not None
    assert (content.received, len(content._chunks), len(content._end)) == (20_000, 0, 20_000)
