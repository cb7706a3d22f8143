"""Messages that have come in part take a limited room together, on however many connections: who sends long ones is
refused beyond it, short calls pass."""

from __future__ import annotations

import pytest
from protocols.grpc.echo_bench import SMALL
from protocols.grpc.http2_peer import Http2Peer, call, data, headers, message, request_fields, word

from trimq.protocols.contract import SPARED_BYTES, HeldBytes
from trimq.protocols.grpc.frames import BrokenConnection, Fault, Kind, frame
from trimq.protocols.grpc.statuses import Status

EXHAUSTED = str(int(Status.RESOURCE_EXHAUSTED))
LARGE = SMALL._replace(message_bytes=8 << 20, header_bytes=200_000)
PIECE = bytes(16_000)
LIMIT = 1_000_000


def begin(number: int, method: str = "Plain") -> bytes:
    """48,000 bytes of a message that has a million."""
    start = message(bytes(1_000_000))[:16_000]
    return headers(number, request_fields(method)) + b"".join(data(number, each, 0) for each in (start, PIECE, PIECE))


def full() -> tuple[HeldBytes, list[Http2Peer]]:
    """They have begun when there was room for them."""
    together = HeldBytes()
    peers = [Http2Peer(LARGE, together=together).greet() for _ in range(3)]
    for peer in peers:
        for number in range(1, 15, 2):
            peer.say(begin(number))
    together.limit = LIMIT
    assert together.is_exceeded
    return together, peers


@pytest.mark.parametrize("method", ["Plain", "Stream"])
def test_many_streams_of_many_connections_hold_no_more_than_the_limit(method: str) -> None:
    together = HeldBytes(LIMIT)
    peers = [Http2Peer(LARGE, together=together).greet() for _ in range(10)]
    for peer in peers:
        for number in range(1, 100, 2):
            peer.say(begin(number, method))
    assert LIMIT - 3 * len(PIECE) < together.count < LIMIT + len(peers) * (SPARED_BYTES + len(PIECE))
    answers = [answer for peer in peers for answer in peer.answers.values()]
    refused = [answer for answer in answers if answer.is_ended]
    assert len(refused) > 400
    assert {answer.status for answer in refused} == {EXHAUSTED}
    assert "1000000 bytes allowed" in refused[0].headers[-1]["grpc-message"]


def test_beyond_the_limit_short_calls_pass_on_every_connection() -> None:
    together, peers = full()
    for peer in peers:
        peer.say(call(101, b"short"))
        assert peer.answers[101].messages == [b"echo short"]
    other = Http2Peer(LARGE, together=together).greet()
    other.say(call(1, b"y" * 50_000))
    assert other.answers[1].messages == [b"echo " + b"y" * 50_000]


def test_beyond_the_limit_a_long_message_is_refused_and_its_connection_lives() -> None:
    together, (first, second, _) = full()
    other = Http2Peer(LARGE, together=together).greet()
    other.say(call(1, b"y" * 200_000))
    assert other.answers[1].status == EXHAUSTED
    second.say(data(1, PIECE, 0))
    assert second.answers[1].status == EXHAUSTED
    first.conversation.closed()
    assert together.count < LIMIT
    other.say(call(3, b"y" * 200_000))
    assert other.answers[3].messages == [b"echo " + b"y" * 200_000]


def test_a_stream_that_is_reset_gives_back_what_it_held() -> None:
    together = HeldBytes(LIMIT)
    peer = Http2Peer(LARGE, together=together).greet()
    peer.say(begin(1))
    assert together.count == 48_000
    peer.say(word(Kind.RST_STREAM, 1, Fault.CANCEL))
    assert together.count == 0


def test_the_message_of_a_call_that_does_not_end_is_counted() -> None:
    together = HeldBytes(LIMIT)
    peer = Http2Peer(LARGE, together=together).greet()
    peer.say(headers(1) + data(1, message(b"x" * 9000), 0))
    assert together.count == 9000
    peer.say(data(1, b""))
    assert (together.count, peer.answers[1].messages) == (0, [b"echo " + b"x" * 9000])


def test_what_a_slow_reader_asks_is_counted_until_it_is_handled() -> None:
    together = HeldBytes(100_000)
    peer = Http2Peer(LARGE._replace(unsent_bytes=1000), window=10, together=together).greet()
    for number in range(1, 41, 2):
        peer.say(call(number, b"x" * 10_000))
    assert together.count == 100_000
    assert peer.answers[39].reset == Fault.REFUSED_STREAM
    peer.say(word(Kind.WINDOW_UPDATE, 0, 1 << 20) + frame(Kind.SETTINGS, 0, 0, b"\x00\x04\x00\x10\x00\x00"))
    assert together.count == 0
    assert peer.answers[3].messages == [b"echo " + b"x" * 10_000]


def test_long_headers_are_counted_and_refused_beyond_the_limit() -> None:
    together = HeldBytes(LIMIT)
    peers = [Http2Peer(LARGE, together=together).greet() for _ in range(2)]
    for peer in peers:
        for number in range(1, 101, 2):
            many = {f"x{at}": "v" * 1000 for at in range(15)}
            peer.say(headers(number, request_fields(**many)))
    assert LIMIT - 20_000 < together.count < LIMIT + 2 * (SPARED_BYTES + 20_000)
    assert peers[1].answers[99].status == EXHAUSTED


def test_headers_without_end_are_counted_and_end_their_connection_beyond_the_limit() -> None:
    together, _ = full()
    before = together.count
    peer = Http2Peer(LARGE, together=together).greet()
    peer.say(frame(Kind.HEADERS, 0, 1, PIECE))
    assert together.count == before + len(PIECE)
    with pytest.raises(BrokenConnection, match="1000000 bytes allowed") as broken:
        peer.say(frame(Kind.CONTINUATION, 0, 1, PIECE) * 10)
    assert broken.value.fault == Fault.ENHANCE_YOUR_CALM
    peer.conversation.closed()
    assert together.count == before
