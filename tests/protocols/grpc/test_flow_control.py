"""Flow control in both directions: data that a slow client does not read is held and bounded, few long messages are
received at a time, and no call waits for ever."""

from __future__ import annotations

import gzip
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st
from protocols.grpc.echo_bench import SMALL
from protocols.grpc.http2_peer import (
    Http2Peer,
    call,
    data,
    frames_of,
    headers,
    message,
    pieces,
    request_fields,
    settings,
    word,
)

from trimq.clock import ManualTime
from trimq.protocols.grpc.frames import (
    END_STREAM,
    FRAME_BYTES,
    PADDED,
    ErrorCode,
    FrameType,
    Http2ConnectionError,
    frame,
    window_update,
)
from trimq.protocols.grpc.receive_window import CONNECTION_WINDOW, STREAM_WINDOW

LARGE = SMALL._replace(message_bytes=8 << 20)


def held_bytes(peer: Http2Peer) -> int:
    return peer.conversation._http2.send_window.held_bytes


# -- sending


def test_an_answer_waits_for_its_streams_window() -> None:
    peer = Http2Peer(LARGE, window=100).greet()
    peer.say(call(1, b"x" * 300))
    answer = peer.answers[1]
    assert (len(answer.data), answer.is_ended, held_bytes(peer)) == (100, False, 210)
    peer.say(window_update(1, 10))
    assert (len(answer.data), answer.is_ended) == (110, False)
    peer.say(window_update(1, 1000))
    assert (answer.messages, answer.status, held_bytes(peer)) == ([b"echo " + b"x" * 300], "0", 0)


def test_answers_wait_for_the_connections_window_in_their_order() -> None:
    peer = Http2Peer(LARGE, window=65_535).greet()
    for number in (1, 3, 5):
        peer.say(call(number, b"x" * 40_000))
    assert [len(peer.answers[number].data) for number in (1, 3, 5)] == [40_010, 65_535 - 40_010, 0]
    assert peer.answers[5].headers, "headers waited for a window"
    peer.say(window_update(0, 30_000))
    assert [peer.answers[number].is_ended for number in (1, 3, 5)] == [True, True, False]
    peer.say(window_update(0, 100_000))
    assert peer.answers[5].messages == [b"echo " + b"x" * 40_000]


def test_the_initial_window_may_be_changed_even_below_zero() -> None:
    peer = Http2Peer(LARGE, window=1000).greet()
    peer.say(call(1, b"x" * 3000))
    peer.say(settings((4, 10)))
    assert peer.conversation._http2.streams[1].window == -990
    peer.say(window_update(1, 990))
    assert len(peer.answers[1].data) == 1000
    peer.say(settings((4, 100_000)))
    assert peer.answers[1].status == "0"


def test_frames_are_as_long_as_the_peer_allows() -> None:
    peer = Http2Peer(LARGE).greet()
    peer.say(settings((5, 50_000)))
    peer.feed(call(1, b"wait"))
    peer.read()
    peer.echo.held[0].resolve([b"y" * 60_000])
    sizes = [len(each.payload) for each in frames_of(bytes(peer._unread)) if each.kind == FrameType.DATA]
    assert sizes == [50_000, 10_005]


def test_a_slow_reader_gets_no_more_answers_until_it_has_read() -> None:
    peer = Http2Peer(LARGE._replace(unsent_bytes=10_000), window=1000).greet()
    for number in range(1, 101, 2):
        peer.say(call(number, b"x" * 3000))
    assert held_bytes(peer) < 10_000 + 3010
    assert len(peer.echo.call_info) < 10, "the other calls were handled"
    peer.say(settings((4, 1 << 20)))
    peer.say(window_update(0, 1 << 20))
    assert [peer.answers[number].status for number in range(1, 101, 2)] == ["0"] * 50
    assert (len(peer.echo.call_info), held_bytes(peer)) == (50, 0)


def test_a_call_behind_a_slow_reader_may_be_cancelled() -> None:
    peer = Http2Peer(LARGE._replace(unsent_bytes=1024), window=10).greet()
    peer.say(call(1, b"x" * 3000) + call(3, b"y") + call(5, b""))
    peer.say(word(FrameType.RST_STREAM, 3, ErrorCode.CANCEL))
    peer.say(word(FrameType.RST_STREAM, 1, ErrorCode.CANCEL))
    assert held_bytes(peer) == 0
    assert len(peer.echo.call_info) == 2, "the cancelled call was handled"
    assert peer.answers[5].messages == [b"echo "]


def test_messages_on_an_unread_stream_are_dropped_at_the_limit() -> None:
    peer = Http2Peer(LARGE._replace(unsent_bytes=5000), window=10).greet()
    peer.say(headers(1, request_fields("Stream")))
    sink = peer.echo.opened[0].sink
    assert not sink.is_congested
    for _ in range(1000):
        sink([b"notice" * 10])
    assert held_bytes(peer) < 5000 + 100
    assert sink.is_congested
    peer.say(settings((4, 1 << 20)))
    assert held_bytes(peer) == 0
    assert not sink.is_congested
    assert set(peer.answers[1].messages) == {b"notice" * 10}


def test_a_stream_that_ended_while_unread_ends_after_its_messages() -> None:
    peer = Http2Peer(LARGE, window=3).greet()
    peer.say(headers(1, request_fields("Stream")) + data(1, message(b"1"), 0) + data(1, message(b"bad"), 0))
    peer.say(data(1, message(b"more"), 0))
    assert not peer.answers[1].is_ended
    assert peer.echo.opened[0].is_closed
    peer.echo.opened[0].sink([b"too late"])
    peer.say(settings((4, 1000)))
    assert (peer.answers[1].messages, peer.answers[1].status) == ([b"echo 1"], "3")
    assert peer.answers[1].reset == ErrorCode.NO_ERROR


# -- receiving


def test_short_messages_need_no_window_update() -> None:
    peer = Http2Peer(LARGE).greet()
    for number in range(1, 21, 2):
        peer.say(call(number, b"x" * 3000))
    assert peer.windows(1) == 0
    assert peer.windows(0) == CONNECTION_WINDOW - 65_535


def test_the_connections_window_is_extended_as_it_is_used() -> None:
    peer = Http2Peer(LARGE).greet()
    for number in range(1, 2001, 2):
        peer.say(call(number, b"x" * 3000))
    sent = 1000 * 3005
    assert CONNECTION_WINDOW - 65_535 <= peer.windows(0) - (sent - CONNECTION_WINDOW // 2) <= 2 * CONNECTION_WINDOW


def test_a_long_message_is_granted_the_rest_of_its_length() -> None:
    peer = Http2Peer(LARGE).greet()
    body = b"x" * (1 << 20)
    first, *rest = pieces(1, message(body))
    peer.say(headers(1) + first)
    assert STREAM_WINDOW + peer.windows(1) == len(message(body)) + 256  # a frame may be padded
    for piece in rest:
        peer.say(piece, piece=30_000)
    assert peer.answers[1].messages == [b"echo " + body]


def test_few_long_messages_are_received_at_a_time_and_all_are_received() -> None:
    peer = Http2Peer(LARGE._replace(message_bytes=1 << 20)).greet()
    whole = message(b"x" * 400_000)
    numbers = range(1, 41, 2)
    unsent = dict.fromkeys(numbers, whole)
    credit = dict.fromkeys(numbers, STREAM_WINDOW)
    opened = dict.fromkeys(numbers, 0)
    for number in numbers:
        peer.say(headers(number))
    most = 0
    while unsent:
        before = sum(map(len, unsent.values()))
        for number in list(unsent):
            granted = peer.windows(number)
            credit[number] += granted - opened[number]
            opened[number] = granted
            size = min(credit[number], len(unsent[number]), FRAME_BYTES)
            if size:
                piece, unsent[number] = unsent[number][:size], unsent[number][size:]
                credit[number] -= size
                peer.say(data(number, piece, 0 if unsent[number] else END_STREAM), piece=30_000)
            if not unsent[number]:
                del unsent[number]
        assert sum(map(len, unsent.values())) < before, "deadlock: all messages wait for room"
        held = [stream.partial for stream in peer.conversation._http2.streams.values() if stream.partial]
        most = max(most, sum(map(len, held)))
    assert all(peer.answers[number].status == "0" for number in numbers)
    assert most <= (1 << 20) + len(numbers) * STREAM_WINDOW


def test_room_is_released_when_a_long_message_is_cancelled() -> None:
    peer = Http2Peer(LARGE._replace(message_bytes=1 << 20)).greet()
    begun = message(b"x" * 900_000)[:1000]
    peer.say(headers(1) + data(1, begun, 0) + headers(3) + data(3, begun, 0))
    assert (peer.windows(1) > 0, peer.windows(3)) == (True, 0)
    peer.say(headers(5) + data(5, begun, 0) + word(FrameType.RST_STREAM, 3, ErrorCode.CANCEL))
    peer.say(word(FrameType.RST_STREAM, 1, ErrorCode.CANCEL))
    assert STREAM_WINDOW + peer.windows(5) == 900_005 + 256


def test_padding_does_not_use_up_the_room_of_a_message() -> None:
    peer = Http2Peer(LARGE).greet()
    whole = message(b"x" * 200_000)
    peer.say(headers(1))
    sent = 0
    for at in range(0, len(whole), 1000):
        payload = b"\xff" + whole[at : at + 1000] + bytes(255)
        sent += len(payload)
        is_last = at + 1000 >= len(whole)
        assert STREAM_WINDOW + peer.windows(1) >= sent
        peer.say(frame(FrameType.DATA, PADDED | (END_STREAM if is_last else 0), 1, payload))
    assert peer.answers[1].status == "0"


def test_the_window_of_a_continuing_stream_is_extended() -> None:
    peer = Http2Peer(LARGE).greet()
    peer.say(headers(1, request_fields("Stream")))
    sent = 0
    for number in range(100):
        piece = data(1, message(b"%d" % number * 1000), 0)
        sent += len(piece) - 9
        assert STREAM_WINDOW + peer.windows(1) >= sent
        peer.say(piece)
    assert len(peer.answers[1].messages) == 100


def test_sending_beyond_the_window_ends_the_stream() -> None:
    peer = Http2Peer(LARGE._replace(message_bytes=1 << 20)).greet()
    whole = message(b"x" * 900_000)
    peer.say(headers(1) + data(1, whole[:1000], 0) + headers(3))
    for piece in pieces(3, whole)[:5]:
        peer.say(piece, piece=30_000)
    assert (peer.answers[3].reset, 1 in peer.answers) == (ErrorCode.FLOW_CONTROL_ERROR, False)


def test_more_than_the_connections_window_is_an_error() -> None:
    receive_window = Http2Peer(LARGE).greet().conversation._http2.receive_window
    with pytest.raises(Http2ConnectionError, match="peer exceeded the window of the connection"):
        receive_window.take(CONNECTION_WINDOW + 1)


@given(
    st.lists(st.integers(1, 5000), min_size=1, max_size=8),
    st.lists(st.tuples(st.integers(0, 8), st.integers(1, 4000)), max_size=40),
    st.integers(0, 3000),
)
def test_with_any_windows_a_peer_gets_exactly_its_answers(
    sizes: list[int], opened: list[tuple[int, int]], window: int
) -> None:
    peer = Http2Peer(LARGE._replace(idle_frames=100_000), window=window).greet()
    allowed = {0: 65_535, **{2 * at + 1: window for at in range(len(sizes))}}
    for at, size in enumerate(sizes):
        peer.say(call(2 * at + 1, b"x" * size))
    for at, increment in opened:
        number = 2 * at - 1 if at else 0
        if number in allowed:
            allowed[number] += increment
            peer.say(window_update(number, increment))
        lengths = {number: len(answer.data) for number, answer in peer.answers.items()}
        assert all(length <= allowed[number] for number, length in lengths.items())
        assert sum(lengths.values()) <= allowed[0]
    peer.say(window_update(0, 1 << 20) + settings((4, 1 << 20)))
    assert [peer.answers[2 * at + 1].messages for at in range(len(sizes))] == [
        [b"echo " + b"x" * size] for size in sizes
    ]
    assert held_bytes(peer) == 0


def test_cancelled_calls_behind_a_slow_reader_are_released() -> None:
    peer = Http2Peer(LARGE._replace(unsent_bytes=1024), window=10).greet()
    peer.say(call(1, b"x" * 2000))
    for number in range(3, 103, 2):
        peer.say(call(number, b"x" * 5000) + word(FrameType.RST_STREAM, number, ErrorCode.CANCEL))
    assert not peer.conversation._deferred


def test_requests_of_a_slow_reader_are_bounded_too() -> None:
    peer = Http2Peer(LARGE._replace(unsent_bytes=5000, message_bytes=10_000), window=1000).greet()
    peer.say(call(1, b"x" * 9000))
    for number in (3, 5, 7):
        peer.say(call(number, b"y" * 4000))
    assert [number for number in (3, 5, 7) if number in peer.answers] == [7]
    assert peer.answers[7].reset == ErrorCode.REFUSED_STREAM  # the client may retry the call
    peer.say(settings((4, 1 << 20)) + window_update(0, 1 << 20))
    assert [len(peer.answers[number].messages) for number in (1, 3, 5)] == [1, 1, 1]
    assert len(peer.echo.call_info) == 3


def test_long_messages_of_unfinished_calls_are_not_collected() -> None:
    peer = Http2Peer(LARGE._replace(message_bytes=150_000)).greet()
    whole = message(b"x" * 150_000)
    for number in (1, 3):
        peer.say(headers(number) + data(number, whole[:1000], 0))
    for at in range(1000, len(whole), FRAME_BYTES):
        peer.say(data(1, whole[at : at + FRAME_BYTES], 0), piece=30_000)
    assert peer.windows(3) == 0
    peer.say(data(1, b""))
    assert peer.answers[1].messages == [b"echo " + b"x" * 150_000]
    assert peer.windows(3) > 0


def test_a_compressed_message_takes_little_until_its_call_ends() -> None:
    peer = Http2Peer(LARGE).greet()
    whole = message(gzip.compress(bytes(4 << 20)), 1)
    assert len(whole) < FRAME_BYTES
    tracemalloc.start()
    try:
        for number in (1, 3, 5, 7):
            peer.say(headers(number, request_fields(grpc_encoding="gzip")) + data(number, whole, 0))
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 1 << 20
    peer.say(data(1, b""))
    assert peer.answers[1].messages == [b"echo " + bytes(4 << 20)]


def test_a_second_message_of_a_plain_call_is_not_waited_for() -> None:
    peer = Http2Peer(LARGE).greet()
    peer.say(headers(1) + data(1, message(b"x") + message(b"y" * 100_000)[:100], 0))
    assert (peer.answers[1].status, peer.answers[1].headers[-1]["grpc-message"]) == (
        "13",
        "unary call with more than one message",
    )


def test_room_released_by_a_stream_at_its_deadline_is_reused_at_once() -> None:
    time = ManualTime(0)
    peer = Http2Peer(LARGE._replace(message_bytes=150_000), liveness=time).greet()
    whole = message(b"x" * 150_000)
    peer.say(headers(1, request_fields("Stream", grpc_timeout="5S")) + data(1, whole[:1000], 0))
    peer.say(headers(3) + data(3, whole[:1000], 0))
    assert peer.windows(3) == 0
    time.step(5000)
    peer.read()
    assert peer.windows(3) > 0
