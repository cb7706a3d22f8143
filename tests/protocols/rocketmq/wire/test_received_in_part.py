"""Memory limit of incomplete commands, over all connections of both ports: beyond it, old connections that have sent a
part of a long command yield to new ones; short commands pass."""

from __future__ import annotations

import contextlib
import struct

import pytest
from protocols.grpc.echo_bench import SMALL
from protocols.grpc.http2_peer import Http2Peer, call
from protocols.rocketmq.rocketmq_desk import Desk, Peer, receive

from trimq.wire.remoting import LARGEST_SIZE, BrokenFrame, RemotingConnection

MIB = 1 << 20
HALF = struct.pack(">iI", 5 * MIB, 100) + bytes(600_000)


def feed(peer: Peer, data: bytes) -> None:
    """Feeds the bytes piece by piece and decodes after each piece, as a session does."""
    for _ in receive(peer.conversation, data):
        assert peer.conversation.next_event() is None


@pytest.fixture
def desk() -> Desk:
    return Desk(received_bytes=2 * MIB)


def test_beyond_the_limit_the_oldest_connection_yields_and_short_commands_pass(desk: Desk) -> None:
    held = [desk.connect(), desk.connect(desk.doors.name_server())]
    for peer in held:
        feed(peer, HALF)
    late = desk.connect(desk.doors.vip())
    feed(late, HALF)
    assert [peer.way.is_closed for peer in (*held, late)] == [True, False, False]
    held[0].conversation.closed()
    assert desk.connect().send("short").code == 0
    assert desk.connect().send("less_short", bytes(60_000)).code == 0
    assert desk.connect().send("long", bytes(600_000)).code == 0
    for peer in (held[1], late):
        peer.conversation.closed()


def test_grpc_shares_the_room_with_remoting(desk: Desk) -> None:
    peers = [desk.connect() for _ in range(2)]
    for peer in peers:
        feed(peer, HALF)
    desk.doors.held_bytes.change(MIB)
    other = Http2Peer(SMALL._replace(message_bytes=MIB), receive_memory=desk.doors.held_bytes).greet()
    other.say(call(1, bytes(200_000)) + call(3, b"short"))
    assert (other.answers[1].status, other.answers[3].status) == ("0", "0")
    assert [peer.way.is_closed for peer in peers] == [True, True]
    desk.doors.held_bytes.change(-MIB)
    for peer in peers:
        peer.conversation.closed()


def test_when_all_are_gone_nothing_is_held() -> None:
    desk = Desk(received_bytes=2 * MIB)
    peers = [desk.connect() for _ in range(20)]
    for peer in peers:
        with contextlib.suppress(BrokenFrame):
            feed(peer, HALF)
        assert desk.doors.held_bytes.count < 4 * MIB
    for peer in (*peers, desk.broker, desk.names):
        peer.conversation.closed()
    assert desk.doors.held_bytes.count == 0


def test_the_buffer_of_a_long_command_is_given_back_though_a_short_one_has_begun() -> None:
    connection = RemotingConnection()
    header = b'{"code":10}'
    frame = struct.pack(">iI", 4 + len(header) + 500_000, len(header)) + header + bytes(500_000)
    connection.receive(frame + frame[:10])
    assert connection.next_event() is not None
    assert connection.next_event() is None
    assert len(connection._received.data) == LARGEST_SIZE
    connection.receive(frame[10:])
    command = connection.next_event()
    assert command is not None
    assert command.body == bytes(500_000)
    assert connection.next_event() is None
    assert connection.release_memory()
    assert connection.memory.count == 0
