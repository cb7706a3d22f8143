"""Memory limit of incomplete messages, over all connections: beyond it, old connections yield to new ones, and a
connection alone has its long calls refused; short calls pass."""

from __future__ import annotations

import pytest
from protocols.grpc.echo_bench import SMALL
from protocols.grpc.http2_peer import Http2Peer, call, data, headers, message, request_fields, word

from trimq.protocols.grpc.frames import ErrorCode, FrameType, Http2ConnectionError, frame
from trimq.protocols.grpc.statuses import Status
from trimq.wire.receive_buffer import ALWAYS_ALLOWED_BYTES, ReceiveMemory

EXHAUSTED = str(int(Status.RESOURCE_EXHAUSTED))
LARGE = SMALL._replace(message_bytes=8 << 20, header_bytes=200_000)
PIECE = bytes(16_000)
LIMIT = 1_000_000


def begin(number: int, method: str = "Plain") -> bytes:
    """The first 48,000 bytes of a message of one million bytes."""
    start = message(bytes(1_000_000))[:16_000]
    return headers(number, request_fields(method)) + b"".join(data(number, each, 0) for each in (start, PIECE, PIECE))


def full() -> tuple[ReceiveMemory, list[Http2Peer]]:
    """Fills the memory limit with calls that were begun while there was room."""
    receive_memory = ReceiveMemory()
    peers = [Http2Peer(LARGE, receive_memory=receive_memory).greet() for _ in range(3)]
    for peer in peers:
        for number in range(1, 15, 2):
            peer.say(begin(number))
    receive_memory.limit = LIMIT
    assert receive_memory.is_exceeded
    return receive_memory, peers


@pytest.mark.parametrize("method", ["Plain", "Stream"])
def test_many_streams_of_many_connections_hold_no_more_than_the_limit(method: str) -> None:
    receive_memory = ReceiveMemory(LIMIT)
    peers = [Http2Peer(LARGE, receive_memory=receive_memory).greet() for _ in range(10)]
    for peer in peers:
        for number in range(1, 100, 2):
            peer.say(begin(number, method))
    assert LIMIT - 3 * len(PIECE) < receive_memory.count < LIMIT + len(peers) * (ALWAYS_ALLOWED_BYTES + len(PIECE))
    answers = [answer for peer in peers for answer in peer.answers.values()]
    refused = [answer for answer in answers if answer.is_ended]
    assert len(refused) > 250
    assert {answer.status for answer in refused} == {EXHAUSTED}
    assert "1000000 bytes allowed" in refused[0].headers[-1]["grpc-message"]
    assert [peer.is_aborted for peer in peers] == [True] * 9 + [False]


def test_beyond_the_limit_short_calls_pass_on_every_connection() -> None:
    receive_memory, peers = full()
    for peer in peers:
        peer.say(call(101, b"short"))
        assert peer.answers[101].messages == [b"echo short"]
    other = Http2Peer(LARGE, receive_memory=receive_memory).greet()
    other.say(call(1, b"y" * 50_000))
    assert other.answers[1].messages == [b"echo " + b"y" * 50_000]


def test_beyond_the_limit_the_oldest_connection_yields_to_a_long_message_of_a_new_one() -> None:
    receive_memory, peers = full()
    other = Http2Peer(LARGE, receive_memory=receive_memory).greet()
    other.say(call(1, b"y" * 200_000))
    assert other.answers[1].messages == [b"echo " + b"y" * 200_000]
    assert [peer.is_aborted for peer in peers] == [True, False, False]
    held = receive_memory.count
    peers[0].conversation.closed()
    assert receive_memory.count == held < LIMIT


def test_a_connection_alone_has_its_long_messages_refused_beyond_the_limit_and_stays_open() -> None:
    receive_memory = ReceiveMemory(LIMIT)
    peer = Http2Peer(LARGE, receive_memory=receive_memory).greet()
    for number in range(1, 45, 2):
        peer.say(begin(number))
    assert peer.answers[43].status == EXHAUSTED
    peer.say(word(FrameType.RST_STREAM, 1, ErrorCode.CANCEL) + word(FrameType.RST_STREAM, 3, ErrorCode.CANCEL))
    peer.say(call(101, b"short"))
    assert peer.answers[101].messages == [b"echo short"]


def test_a_stream_that_is_reset_releases_its_memory() -> None:
    receive_memory = ReceiveMemory(LIMIT)
    peer = Http2Peer(LARGE, receive_memory=receive_memory).greet()
    peer.say(begin(1))
    assert receive_memory.count == 48_000
    peer.say(word(FrameType.RST_STREAM, 1, ErrorCode.CANCEL))
    assert receive_memory.count == 0


def test_the_message_of_an_unfinished_call_is_counted() -> None:
    receive_memory = ReceiveMemory(LIMIT)
    peer = Http2Peer(LARGE, receive_memory=receive_memory).greet()
    peer.say(headers(1) + data(1, message(b"x" * 9000), 0))
    assert receive_memory.count == 9000
    peer.say(data(1, b""))
    assert (receive_memory.count, peer.answers[1].messages) == (0, [b"echo " + b"x" * 9000])


def test_requests_of_a_slow_reader_are_counted_until_they_are_handled() -> None:
    receive_memory = ReceiveMemory(100_000)
    peer = Http2Peer(LARGE._replace(unsent_bytes=1000), window=10, receive_memory=receive_memory).greet()
    for number in range(1, 41, 2):
        peer.say(call(number, b"x" * 10_000))
    assert receive_memory.count == 100_000
    assert peer.answers[39].reset == ErrorCode.REFUSED_STREAM
    peer.say(word(FrameType.WINDOW_UPDATE, 0, 1 << 20) + frame(FrameType.SETTINGS, 0, 0, b"\x00\x04\x00\x10\x00\x00"))
    assert receive_memory.count == 0
    assert peer.answers[3].messages == [b"echo " + b"x" * 10_000]


def test_long_headers_are_counted_and_refused_beyond_the_limit() -> None:
    receive_memory = ReceiveMemory(LIMIT)
    peer = Http2Peer(LARGE, receive_memory=receive_memory).greet()
    many = {f"x{at}": "v" * 1000 for at in range(15)}
    for number in range(1, 201, 2):
        peer.say(headers(number, request_fields(**many)))
    assert LIMIT - 20_000 < receive_memory.count < LIMIT + ALWAYS_ALLOWED_BYTES + 20_000
    assert peer.answers[199].status == EXHAUSTED


def test_headers_without_end_are_counted_and_end_their_connection_beyond_the_limit() -> None:
    receive_memory = ReceiveMemory(100_000)
    peer = Http2Peer(LARGE, receive_memory=receive_memory).greet()
    peer.say(frame(FrameType.HEADERS, 0, 1, PIECE))
    assert receive_memory.count == len(PIECE)
    with pytest.raises(Http2ConnectionError, match="100000 bytes allowed") as broken:
        peer.say(frame(FrameType.CONTINUATION, 0, 1, PIECE) * 10)
    assert broken.value.fault == ErrorCode.ENHANCE_YOUR_CALM
    peer.conversation.closed()
    assert receive_memory.count == 0
