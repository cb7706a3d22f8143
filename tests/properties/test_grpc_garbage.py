"""HTTP/2 with random frames: each is answered, ignored, or ends its stream or its connection; the connection keeps
bounded memory, and the split into pieces does not matter."""

from __future__ import annotations

import struct

from hypothesis import example, given
from hypothesis import strategies as st
from protocols.grpc.echo_bench import SMALL
from protocols.grpc.http2_peer import Http2Peer, call, data, headers, message, request_fields, settings, word

from trimq.protocols.grpc.frames import (
    END_HEADERS,
    END_STREAM,
    PADDED,
    PREFACE,
    ErrorCode,
    FrameType,
    Http2ConnectionError,
    frame,
    goaway,
)
from trimq.protocols.grpc.receive_window import STREAM_WINDOW
from trimq.protocols.grpc.received_frames import BUFFER_BYTES

PING = frame(FrameType.PING, 0, 0, b"12345678")
NUMBERS = st.sampled_from([0, 1, 2, 3, 5, 7, 9, 11, (1 << 31) - 1])
WORDS = st.sampled_from([0, 1, 8, 255, 65_535, 1 << 20, (1 << 31) - 1, (1 << 32) - 1])
RAW = st.sampled_from([b"x", b"wait", b"write", b"bad", b"bug", b"", b"y" * 5000])
METHODS = st.sampled_from(["Plain", "Parts", "Stream", "Nothing"])

FRAMES = st.one_of(
    st.builds(call, NUMBERS, RAW, METHODS),
    st.builds(lambda number, method: headers(number, request_fields(method)), NUMBERS, METHODS),
    st.builds(
        lambda number, flags, block: frame(FrameType.HEADERS, flags, number, block),
        NUMBERS,
        st.integers(0, 255),
        st.binary(max_size=40),
    ),
    st.builds(
        lambda number, raw, flags: data(number, message(raw), flags), NUMBERS, RAW, st.sampled_from([0, END_STREAM])
    ),
    st.builds(
        lambda number, raw, flags: data(number, raw, flags), NUMBERS, st.binary(max_size=40), st.integers(0, 255)
    ),
    st.builds(lambda number, raw: data(number, raw, 0), NUMBERS, st.just(message(b"z" * 4096)[:4000])),
    st.builds(word, st.sampled_from([FrameType.RST_STREAM, FrameType.WINDOW_UPDATE]), NUMBERS, WORDS),
    st.builds(lambda name, value: settings((name, value)), st.integers(0, 8), WORDS),
    st.builds(frame, st.integers(0, 12), st.integers(0, 255), NUMBERS, st.binary(max_size=30)),
    st.builds(
        lambda number, last: frame(FrameType.CONTINUATION, last, number, b"\x82"),
        NUMBERS,
        st.sampled_from([0, END_HEADERS]),
    ),
    st.binary(max_size=20),
)


def exchange(sent: bytes, pieces: list[int]) -> tuple[Http2Peer, str]:
    """Feeds the bytes in pieces, and returns the peer and the protocol error, if any."""
    peer = Http2Peer(SMALL._replace(idle_frames=100))
    at, fault = 0, ""
    try:
        for size in [*pieces, len(sent)]:
            peer.feed(sent[at : at + min(size, 20_000)])
            at += min(size, 20_000)
        while at < len(sent):
            peer.feed(sent[at : at + 20_000])
            at += 20_000
    except Http2ConnectionError as broken:
        fault = str(broken)
        peer.send(peer.conversation.closing_parts(broken))
    return peer, fault


def check_memory(peer: Http2Peer) -> None:
    http2 = peer.conversation._http2
    assert len(http2.streams) <= SMALL.streams
    held = sum(len(stream.partial) for stream in http2.streams.values() if stream.partial)
    assert held <= SMALL.message_bytes + len(http2.streams) * STREAM_WINDOW
    assert http2.send_window.held_bytes == sum(sum(map(len, each.held)) for each in http2.streams.values() if each.held)
    assert http2.send_window.held_bytes <= SMALL.unsent_bytes + 6000
    assert len(http2._received.data) <= BUFFER_BYTES


def check_released(peer: Http2Peer) -> None:
    peer._pending_replies.abandon_all()
    peer.conversation.closed()
    assert all(stream.is_closed for stream in peer.echo.opened)
    assert peer.liveness.next_due_ms() is None  # type: ignore[attr-defined]


@given(st.lists(FRAMES, max_size=25), st.lists(st.integers(1, 100), max_size=30))
@example([call(1, b"wait"), word(FrameType.RST_STREAM, 1, ErrorCode.CANCEL), goaway(0, ErrorCode.NO_ERROR, "")], [])
def test_random_frames_use_bounded_memory_and_leave_nothing(sent: list[bytes], pieces: list[int]) -> None:
    peer, _ = exchange(PREFACE + b"".join(sent), pieces)
    check_memory(peer)
    peer.read()
    check_released(peer)


@given(st.lists(FRAMES, max_size=12), st.lists(st.integers(1, 60), max_size=60))
@example([call(1, b"x", "Nothing"), headers(0)], [1, 57, 60])
@example([headers(1), frame(FrameType.DATA, PADDED, 1, b"\x04" + bytes(9)), PING, call(3, b"x")], [1, 57, 160])
def test_the_split_into_pieces_does_not_matter(sent: list[bytes], pieces: list[int]) -> None:
    whole = PREFACE + b"".join(sent)
    (once, fault), (apart, same_fault) = exchange(whole, []), exchange(whole, pieces)
    assert (fault, [type(event) for event in once.events]) == (same_fault, [type(event) for event in apart.events])
    assert once._unread == apart._unread
    for peer in (once, apart):
        check_released(peer)


@given(st.binary(max_size=200))
def test_a_peer_without_the_http2_preface_is_refused(sent: bytes) -> None:
    peer, fault = exchange(sent, [])
    if PREFACE.startswith(sent[: len(PREFACE)]):
        assert fault == "" or sent.startswith(PREFACE)
    else:
        assert fault == "the peer does not speak HTTP/2"
    check_released(peer)


@given(st.lists(st.integers(0, (1 << 32) - 1), max_size=6))
def test_any_settings_are_acknowledged_or_a_protocol_error(values: list[int]) -> None:
    raw = b"".join(struct.pack(">HI", at + 1, value) for at, value in enumerate(values))
    peer, fault = exchange(PREFACE + frame(FrameType.SETTINGS, 0, 0, raw) + call(1, b"x"), [])
    peer.read()
    if not fault:
        window = values[3] if len(values) > 3 else 65_535
        assert peer.answers[1].is_ended == (window >= 11)
