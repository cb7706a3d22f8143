"""HTTP/2 on one connection: frames that end it, frames that reset a stream, ignored frames, and length limits."""

from __future__ import annotations

import struct

import pytest
from protocols.grpc.echo_bench import SMALL
from protocols.grpc.http2_peer import Http2Peer, call, data, frames_of, headers, message, request_fields, settings, word

from trimq.clock import ManualTime
from trimq.errors import Stopping
from trimq.protocols.grpc.flood_guard import PERIOD_MS
from trimq.protocols.grpc.frames import (
    ACK,
    END_HEADERS,
    END_STREAM,
    FRAME_BYTES,
    HAS_PRIORITY,
    PADDED,
    PREFACE,
    ErrorCode,
    FrameType,
    Http2ConnectionError,
    frame,
)
from trimq.protocols.grpc.hpack import encode

PING = frame(FrameType.PING, 0, 0, b"12345678")


def test_settings_are_sent_first() -> None:
    peer = Http2Peer()
    peer.say(PREFACE)
    first = peer.others[0]
    assert (first.kind, first.flags, first.number) == (FrameType.SETTINGS, 0, 0)
    announced = dict(struct.iter_unpack(">HI", first.payload))
    assert announced == {3: SMALL.streams, 4: 65_536, 6: SMALL.header_bytes}


def test_a_call_in_pieces_of_one_byte_is_answered_like_a_whole_one() -> None:
    peer = Http2Peer()
    peer.say(PREFACE + settings() + call(1, b"x") + call(3, b"y"), piece=1)
    assert [peer.answers[number].messages for number in (1, 3)] == [[b"echo x"], [b"echo y"]]
    answer = peer.answers[1]
    assert answer.headers == [{":status": "200", "content-type": "application/grpc"}, {"grpc-status": "0"}]


def test_more_than_the_buffer_holds_is_received() -> None:
    peer = Http2Peer().greet()
    asked = b"".join(call(number, b"x" * 3000) for number in range(1, 200, 2))
    peer.say(asked, piece=20_000)
    assert all(peer.answers[number].messages == [b"echo " + b"x" * 3000] for number in range(1, 200, 2))


def test_pings_are_answered_and_settings_acknowledged() -> None:
    peer = Http2Peer().greet()
    peer.say(PING)
    assert [pong.payload for pong in peer.pongs()] == [b"12345678"]
    assert (FrameType.SETTINGS, ACK, 0, b"") in peer.others


@pytest.mark.parametrize(
    "passed_over",
    [
        frame(FrameType.PRIORITY, 0, 7, bytes(5)),
        frame(FrameType.PING, ACK, 0, b"87654321"),
        frame(FrameType.GOAWAY, 0, 0, bytes(8)),
        frame(0xBB, 0xFF, 12, b"?" * 100),
        settings((0xF000, 1)),
        data(1, message(b"late")),
        word(FrameType.RST_STREAM, 1, ErrorCode.CANCEL),
        word(FrameType.WINDOW_UPDATE, 1, 100),
        headers(1, [("late", b"trailer")], END_HEADERS | END_STREAM),
    ],
)
def test_frames_without_effect_are_ignored(passed_over: bytes) -> None:
    peer = Http2Peer().greet()
    peer.say(call(1, b"x"))
    peer.say(passed_over)
    peer.say(call(3, b"y"))
    assert peer.answers[3].messages == [b"echo y"]


@pytest.mark.parametrize(
    ("sent", "fault"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", ErrorCode.PROTOCOL_ERROR),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01", ErrorCode.PROTOCOL_ERROR),  # TLS
        (PREFACE + frame(FrameType.DATA, 0, 1, bytes(FRAME_BYTES + 1)), ErrorCode.FRAME_SIZE_ERROR),
        (PREFACE + struct.pack(">IBI", 0xFFFFFF00, 0, 1), ErrorCode.FRAME_SIZE_ERROR),
        (PREFACE + frame(FrameType.DATA, 0, 0, b"x"), ErrorCode.PROTOCOL_ERROR),
        (PREFACE + frame(FrameType.DATA, 0, 5, b"x"), ErrorCode.PROTOCOL_ERROR),
        (PREFACE + frame(FrameType.DATA, PADDED, 1, b""), ErrorCode.PROTOCOL_ERROR),
        (PREFACE + headers(2), ErrorCode.PROTOCOL_ERROR),
        (PREFACE + headers(0), ErrorCode.PROTOCOL_ERROR),
        (PREFACE + frame(FrameType.HEADERS, END_HEADERS | PADDED, 1, b"\x09abc"), ErrorCode.PROTOCOL_ERROR),
        (PREFACE + frame(FrameType.HEADERS, END_HEADERS | HAS_PRIORITY, 1, b"abc"), ErrorCode.FRAME_SIZE_ERROR),
        (PREFACE + frame(FrameType.HEADERS, END_HEADERS, 1, b"\xff\xff\xff\xff\xff\xff"), ErrorCode.COMPRESSION_ERROR),
        (PREFACE + headers(1, flags=0) + PING, ErrorCode.PROTOCOL_ERROR),
        (PREFACE + headers(1, flags=0) + frame(FrameType.CONTINUATION, 0, 3), ErrorCode.PROTOCOL_ERROR),
        (PREFACE + frame(FrameType.CONTINUATION, END_HEADERS, 1), ErrorCode.PROTOCOL_ERROR),
        (PREFACE + frame(FrameType.PRIORITY, 0, 1, b"x"), ErrorCode.FRAME_SIZE_ERROR),
        (PREFACE + frame(FrameType.RST_STREAM, 0, 1, b"x"), ErrorCode.FRAME_SIZE_ERROR),
        (PREFACE + word(FrameType.RST_STREAM, 1, 8), ErrorCode.PROTOCOL_ERROR),
        (PREFACE + frame(FrameType.SETTINGS, 0, 0, b"12345"), ErrorCode.FRAME_SIZE_ERROR),
        (PREFACE + frame(FrameType.SETTINGS, ACK, 0, b"123456"), ErrorCode.FRAME_SIZE_ERROR),
        (PREFACE + frame(FrameType.SETTINGS, 0, 1), ErrorCode.PROTOCOL_ERROR),
        (PREFACE + settings((2, 2)), ErrorCode.PROTOCOL_ERROR),
        (PREFACE + settings((4, 1 << 31)), ErrorCode.FLOW_CONTROL_ERROR),
        (PREFACE + settings((5, 16_383)), ErrorCode.PROTOCOL_ERROR),
        (PREFACE + settings((5, 1 << 24)), ErrorCode.PROTOCOL_ERROR),
        (PREFACE + frame(FrameType.PUSH_PROMISE, 0, 1, bytes(4)), ErrorCode.PROTOCOL_ERROR),
        (PREFACE + frame(FrameType.PING, 0, 0, b"x"), ErrorCode.FRAME_SIZE_ERROR),
        (PREFACE + frame(FrameType.PING, 0, 1, bytes(8)), ErrorCode.PROTOCOL_ERROR),
        (PREFACE + word(FrameType.WINDOW_UPDATE, 0, 0), ErrorCode.PROTOCOL_ERROR),
        (PREFACE + word(FrameType.WINDOW_UPDATE, 1, 1), ErrorCode.PROTOCOL_ERROR),
        (PREFACE + frame(FrameType.WINDOW_UPDATE, 0, 0, b"x"), ErrorCode.FRAME_SIZE_ERROR),
        (PREFACE + word(FrameType.WINDOW_UPDATE, 0, (1 << 31) - 1), ErrorCode.FLOW_CONTROL_ERROR),
    ],
)
def test_a_protocol_violation_is_answered_with_its_code_and_ends_the_connection(sent: bytes, fault: ErrorCode) -> None:
    peer = Http2Peer()
    with pytest.raises(Http2ConnectionError) as broken:
        peer.say(sent)
    peer.send(peer.conversation.closing_parts(broken.value))
    peer.read()
    last = peer.others[-1]
    assert last.kind == FrameType.GOAWAY
    assert struct.unpack_from(">II", last.payload)[1] == fault
    assert last.payload[8:].decode() == str(broken.value)


@pytest.mark.parametrize(
    ("sent", "fault"),
    [
        (headers(1, flags=END_HEADERS) + headers(1, [("a", b"b")]), ErrorCode.PROTOCOL_ERROR),
        (headers(1) + word(FrameType.WINDOW_UPDATE, 1, 0), ErrorCode.PROTOCOL_ERROR),
        (headers(1) + word(FrameType.WINDOW_UPDATE, 1, (1 << 31) - 1), ErrorCode.FLOW_CONTROL_ERROR),
        (call(1, b"wait") + data(1, b"more"), ErrorCode.STREAM_CLOSED),
        (call(1, b"wait") + headers(1, [("a", b"b")], END_HEADERS | END_STREAM), ErrorCode.STREAM_CLOSED),
        (headers(1, [(":method", b"POST")]), ErrorCode.PROTOCOL_ERROR),
        (headers(1, [*request_fields(), (":path", b"/late")]), ErrorCode.PROTOCOL_ERROR),
        (headers(1, [*request_fields()[:1] * 2, *request_fields()]), ErrorCode.PROTOCOL_ERROR),
        (headers(1, [*request_fields(), ("Upper", b"x")]), ErrorCode.PROTOCOL_ERROR),
        (headers(1, [*request_fields(), ("", b"x")]), ErrorCode.PROTOCOL_ERROR),
        (headers(1, [*request_fields(), ("connection", b"close")]), ErrorCode.PROTOCOL_ERROR),
        (headers(1, [*request_fields(), ("transfer-encoding", b"chunked")]), ErrorCode.PROTOCOL_ERROR),
        (headers(1, [*request_fields(), ("te", b"gzip")]), ErrorCode.PROTOCOL_ERROR),
        (headers(1, [("first-bin", b"AA"), *request_fields()]), ErrorCode.PROTOCOL_ERROR),
        (headers(1, [(":unknown", b"x"), *request_fields()]), ErrorCode.PROTOCOL_ERROR),
        (headers(1, [*request_fields(), ("x-mq-client-id", b"one\ntwo")]), ErrorCode.PROTOCOL_ERROR),
        (headers(1, [*request_fields(), ("x-mq-client-id", b"one\x00")]), ErrorCode.PROTOCOL_ERROR),
        (headers(1, [*request_fields(), ("two words", b"x")]), ErrorCode.PROTOCOL_ERROR),
    ],
)
def test_an_error_of_one_stream_ends_only_that(sent: bytes, fault: ErrorCode) -> None:
    limits = SMALL._replace(message_bytes=1 << 20, idle_frames=10_000)
    peer = Http2Peer(limits).greet()
    peer.say(sent)
    assert peer.answers[1].reset == fault
    assert not peer.conversation._http2.streams
    peer.say(call(3, b"y"))
    assert peer.answers[3].messages == [b"echo y"]


def test_padding_and_priority_are_removed() -> None:
    peer = Http2Peer().greet()
    block = encode(request_fields())
    flags = END_HEADERS | PADDED | HAS_PRIORITY
    peer.say(frame(FrameType.HEADERS, flags, 1, b"\x03" + bytes(5) + block + bytes(3)))
    peer.say(frame(FrameType.DATA, PADDED | END_STREAM, 1, b"\x02" + message(b"x") + bytes(2)))
    assert peer.answers[1].messages == [b"echo x"]


def test_headers_may_be_split_into_several_frames() -> None:
    peer = Http2Peer().greet()
    block = encode(request_fields())
    pieces = [frame(FrameType.CONTINUATION, 0, 1, block[at : at + 1]) for at in range(1, len(block))]
    peer.say(
        frame(FrameType.HEADERS, 0, 1, block[:1]) + b"".join(pieces) + frame(FrameType.CONTINUATION, END_HEADERS, 1)
    )
    peer.say(data(1, message(b"x")))
    assert peer.answers[1].messages == [b"echo x"]


def test_headers_without_end_are_not_kept() -> None:
    peer = Http2Peer().greet()
    peer.say(frame(FrameType.HEADERS, 0, 1, b"x"))
    with pytest.raises(Http2ConnectionError, match="longer than the 4096 bytes allowed"):
        peer.say(frame(FrameType.CONTINUATION, 0, 1, bytes(1000)) * 5)


def test_empty_continuations_without_end_are_a_flood() -> None:
    peer = Http2Peer().greet()
    peer.say(frame(FrameType.HEADERS, 0, 1, b"x"))
    with pytest.raises(Http2ConnectionError, match="idle frames"):
        peer.say(frame(FrameType.CONTINUATION, 0, 1) * (SMALL.idle_frames + 1))


FLOODS = {
    "pings": PING,
    "settings": settings((4, 100_000)),
    "priorities": frame(FrameType.PRIORITY, 0, 1, bytes(5)),
    "unknown": frame(0xEE, 0, 0),
    "tiny windows": word(FrameType.WINDOW_UPDATE, 0, 1),
    "unneeded window updates": word(FrameType.WINDOW_UPDATE, 0, 300),
    "late data": data(1, b"", 0),
}


@pytest.mark.parametrize("flood", FLOODS)
def test_a_flood_of_frames_without_effect_ends_the_connection(flood: str) -> None:
    peer = Http2Peer().greet()
    peer.say(call(1, b"x"))
    with pytest.raises(Http2ConnectionError, match="more than 1000 idle frames in 10 s") as broken:
        peer.say(FLOODS[flood] * (SMALL.idle_frames + 20))
    assert broken.value.fault == ErrorCode.ENHANCE_YOUR_CALM


def test_window_updates_of_streams_without_waiting_data_are_a_flood() -> None:
    peer = Http2Peer(window=65_535).greet()
    peer.say(call(1, b"wait"))
    with pytest.raises(Http2ConnectionError, match="idle frames"):
        peer.say(word(FrameType.WINDOW_UPDATE, 1, 1000) * (SMALL.idle_frames + 20))


def test_window_updates_of_a_stream_that_waits_for_the_connections_window_are_a_flood() -> None:
    peer = Http2Peer(SMALL._replace(message_bytes=1 << 20), window=65_535).greet()
    peer.say(call(1, b"x" * 65_000) + call(3, b"y" * 3000))
    assert not peer.answers[3].is_ended
    with pytest.raises(Http2ConnectionError, match="idle frames"):
        peer.say(word(FrameType.WINDOW_UPDATE, 3, 1000) * (SMALL.idle_frames + 200))


def test_a_client_may_return_windows_for_data_it_has_read_for_ever() -> None:
    peer = Http2Peer().greet()
    peer.say(headers(1, request_fields("Stream")))
    given_back = word(FrameType.WINDOW_UPDATE, 0, 305) + word(FrameType.WINDOW_UPDATE, 1, 305)
    for _ in range(SMALL.idle_frames):
        peer.echo.opened[0].sink([b"x" * 300])
        peer.say(given_back)
    assert len(peer.answers[1].messages) == SMALL.idle_frames


def test_calls_that_are_cancelled_at_once_are_a_flood() -> None:
    peer = Http2Peer().greet()
    with pytest.raises(Http2ConnectionError, match="idle frames"):
        peer.say(
            b"".join(call(n, b"wait") + word(FrameType.RST_STREAM, n, ErrorCode.CANCEL) for n in range(1, 4000, 2))
        )
    assert peer.owed <= 1
    assert len(peer.echo.call_info) <= SMALL.idle_frames + 1


def test_streams_beyond_the_limit_are_refused_and_a_flood_of_them_ends_the_connection() -> None:
    peer = Http2Peer().greet()
    for number in range(1, 2 * SMALL.streams, 2):
        peer.say(call(number, b"wait"))
    peer.say(call(2 * SMALL.streams + 1, b"one too many"))
    assert peer.answers[2 * SMALL.streams + 1].reset == ErrorCode.REFUSED_STREAM
    assert len(peer.echo.held) == SMALL.streams
    peer.echo.held[0].resolve([b"there"])
    peer.say(call(2 * SMALL.streams + 3, b"room again"))
    assert peer.answers[2 * SMALL.streams + 3].messages == [b"echo room again"]
    peer.say(call(2 * SMALL.streams + 5, b"wait"))
    with pytest.raises(Http2ConnectionError, match="idle frames"):
        peer.say(b"".join(headers(number) for number in range(2 * SMALL.streams + 7, 5000, 2)))


def test_occasional_pings_are_allowed_for_ever() -> None:
    time = ManualTime(0)
    peer = Http2Peer(liveness=time).greet()
    for _ in range(5):
        peer.say(PING * 900)
        time.step(time.now_ms() + PERIOD_MS)
    assert len(peer.pongs()) == 4500


def test_a_client_that_makes_calls_may_send_more_pings() -> None:
    peer = Http2Peer().greet()
    for number in range(1, 2001, 2):
        peer.say(PING * 5 + call(number, b"x"))
    assert len(peer.pongs()) == 5000


def test_a_header_table_that_the_peer_forbids_is_dropped_in_our_first_block() -> None:
    peer = Http2Peer()
    peer.say(PREFACE + settings((1, 0)) + call(1, b"x") + call(3, b"y"))
    assert [peer.answers[number].status for number in (1, 3)] == ["0", "0"]
    sent = Http2Peer()
    sent.feed(PREFACE + settings((1, 0)) + call(1, b"x"))
    first = next(each for each in frames(sent) if each[0] == FrameType.HEADERS)
    assert first[1][0] == 0x20


def frames(peer: Http2Peer) -> list[tuple[int, bytes]]:
    return [(each.kind, each.payload) for each in frames_of(bytes(peer._unread))]


def test_an_idle_connection_holds_no_buffer() -> None:
    peer = Http2Peer().greet()
    peer.say(call(1, b"x"))
    assert peer.conversation.release_memory()
    assert not peer.conversation._http2._received.data
    peer.feed(PING[:5])
    assert not peer.conversation.release_memory()
    peer.say(PING[5:] + call(3, b"y"))
    assert peer.answers[3].messages == [b"echo y"]


def test_a_stop_sends_goaway() -> None:
    peer = Http2Peer().greet()
    peer.say(call(5, b"x"))
    peer.send(peer.conversation.closing_parts(Stopping()))
    peer.read()
    assert (peer.others[-1].kind, peer.others[-1].payload) == (
        FrameType.GOAWAY,
        struct.pack(">II", 5, 0) + b"the broker is stopping",
    )
