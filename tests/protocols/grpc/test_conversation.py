"""Calls without a socket: answered in the order in which they are ready, cancelled by either side, and refused with
gRPC statuses."""

from __future__ import annotations

import gzip
import zlib

import pytest
from protocols.grpc.echo_bench import SMALL
from protocols.grpc.http2_peer import Http2Peer, call, data, headers, message, request_fields, word

from trimq.clock import ManualTime
from trimq.errors import Stopping
from trimq.protocols.grpc.frames import END_HEADERS, END_STREAM, ErrorCode, FrameType


def test_calls_under_way_are_answered_as_each_is_ready() -> None:
    peer = Http2Peer().greet()
    peer.say(call(1, b"wait") + call(3, b"write") + call(5, b"wait") + call(7, b"x"))
    assert list(peer.answers) == [7]
    first, last = peer.echo.held
    last.resolve([b"the last"])
    peer.moved(3)
    first.resolve([b"the first"])
    peer.read()
    assert list(peer.answers) == [7, 5, 3, 1]
    sent = {number: answer.messages for number, answer in peer.answers.items()}
    assert sent == {7: [b"echo x"], 5: [b"the last"], 3: [b"durable"], 1: [b"the first"]}
    assert {answer.status for answer in peer.answers.values()} == {"0"}


def test_many_calls_on_one_connection_are_all_answered() -> None:
    peer = Http2Peer(SMALL._replace(streams=500)).greet()
    numbers = range(1, 1000, 2)
    peer.say(b"".join(call(number, b"wait") for number in numbers))
    assert len(peer.echo.held) == 500
    for reply in reversed(peer.echo.held):
        reply.resolve([b"there"])
    peer.read()
    assert [peer.answers[number].messages for number in numbers] == [[b"there"]] * 500
    assert not peer.conversation._http2.streams


def test_the_end_of_a_request_may_be_sent_in_a_frame_of_its_own() -> None:
    peer = Http2Peer().greet()
    peer.say(headers(1) + data(1, message(b"x"), 0))
    assert not peer.answers
    peer.say(data(1, b""))
    assert peer.answers[1].messages == [b"echo x"]
    peer.say(headers(3) + data(3, message(b"y"), 0) + headers(3, [("t", b"1")], END_HEADERS | END_STREAM))
    assert peer.answers[3].messages == [b"echo y"]


def test_a_cancelled_call_is_dropped() -> None:
    peer = Http2Peer().greet()
    peer.say(call(1, b"wait"))
    assert peer.owed == 1
    peer.say(word(FrameType.RST_STREAM, 1, ErrorCode.CANCEL))
    assert peer.echo.abandoned.is_set()
    assert (peer.owed, peer.answers) == (0, {})


def test_a_write_that_is_cancelled_is_done_but_not_answered() -> None:
    peer = Http2Peer().greet()
    peer.say(call(1, b"write") + word(FrameType.RST_STREAM, 1, ErrorCode.CANCEL))
    assert peer.owed == 1
    peer.moved(3)
    assert (peer.owed, peer.answers) == (0, {})


def test_a_call_ends_at_its_deadline() -> None:
    time = ManualTime(0)
    peer = Http2Peer(liveness=time).greet()
    peer.say(call(1, b"wait", grpc_timeout="2S") + call(3, b"wait", grpc_timeout="30S"))
    time.step(1999)
    peer.read()
    assert not peer.answers
    time.step(2000)
    peer.read()
    assert (peer.answers[1].status, peer.owed) == ("4", 1)
    assert peer.echo.abandoned.is_set()
    peer.echo.held[1].resolve([b"in time"])
    peer.read()
    assert peer.answers[3].messages == [b"in time"]
    assert time.next_due_ms() is None


def test_a_stream_ends_at_its_deadline() -> None:
    time = ManualTime(0)
    peer = Http2Peer(liveness=time).greet()
    peer.say(headers(1, request_fields("Stream", grpc_timeout="1M")))
    time.step(60_000)
    peer.read()
    assert peer.answers[1].status == "4"
    assert peer.echo.opened[0].is_closed


@pytest.mark.parametrize(
    ("timeout", "remaining_ms"),
    [("1H", 3_600_000), ("2M", 120_000), ("3S", 3000), ("4m", 4), ("5000u", 5), ("6000000n", 6), ("99999999H", None)],
)
def test_a_timeout_has_six_units(timeout: str, remaining_ms: int | None) -> None:
    peer = Http2Peer().greet()
    peer.say(call(1, b"x", grpc_timeout=timeout, x_mq_client_id="me"))
    (call_info,) = peer.echo.call_info
    assert call_info.remaining_ms == (99_999_999 * 3_600_000 if remaining_ms is None else remaining_ms)
    assert (call_info.address, call_info.metadata["x-mq-client-id"]) == ("10.0.0.9:5009", "me")


def test_repeated_metadata_is_joined_and_binary_metadata_is_left_out() -> None:
    peer = Http2Peer().greet()
    fields = [*request_fields(), ("a", b"1"), ("a", b"2"), ("b-bin", b"AAEC")]
    peer.say(headers(1, fields) + data(1, message(b"x")))
    assert peer.echo.call_info[0].metadata["a"] == "1,2"
    assert "b-bin" not in peer.echo.call_info[0].metadata


@pytest.mark.parametrize("pack", [gzip.compress, zlib.compress], ids=["gzip", "deflate"])
def test_a_compressed_message_is_decompressed(pack: object) -> None:
    assert callable(pack)
    peer = Http2Peer().greet()
    fields = request_fields(grpc_encoding="gzip")
    peer.say(headers(1, fields) + data(1, message(pack(b"x" * 1000), 1)))
    peer.say(headers(3, fields) + data(3, message(b"not packed")))
    assert [peer.answers[number].messages[0][:7] for number in (1, 3)] == [b"echo xx", b"echo no"]


def rejected(sent: bytes) -> tuple[str, str]:
    """Status and reason of a rejected call; the connection stays usable."""
    peer = Http2Peer().greet()
    peer.say(sent)
    peer.say(call(99, b"y"))
    assert peer.answers[99].messages == [b"echo y"]
    assert list(peer.conversation._http2.streams) == []
    return peer.answers[1].status, peer.answers[1].headers[-1]["grpc-message"]


BOMB = gzip.compress(b"x" * 100_000)


@pytest.mark.parametrize(
    ("sent", "status", "why"),
    [
        (call(1, b"x", "Unknown"), "12", "unknown method /test.Echo/Unknown"),
        (call(1, b"x", grpc_encoding="snappy"), "12", "unsupported grpc-encoding snappy"),
        (call(1, b"x", grpc_timeout="soon"), "3", "'soon' is not a valid grpc-timeout"),
        (call(1, b"x", grpc_timeout="123456789S"), "3", "'123456789S' is not a valid grpc-timeout"),
        (call(1, b"x", long="x" * 5000), "8", "the headers are longer than the 4096 bytes allowed"),
        (headers(1, flags=END_HEADERS | END_STREAM), "13", "unary call without a message"),
        (headers(1) + data(1, b""), "13", "call ended before its message was complete"),
        (headers(1) + data(1, message(b"xyz")[:-1]), "13", "call ended before its message was complete"),
        (headers(1) + data(1, message(b"x") * 2), "13", "unary call with more than one message"),
        (headers(1) + data(1, message(b"x"), 0) * 2, "13", "unary call with more than one message"),
        (headers(1) + data(1, message(b"x") + b"\x00"), "13", "unary call with more than one message"),
        (call(1, b"x" * 4097), "8", "message of 4097 bytes is larger than the 4096 bytes allowed"),
        (headers(1) + data(1, b"\x00\xff\xff\xff\xff", 0), "8", "message of 4294967295 bytes is larger than the"),
        (
            headers(1) + data(1, message(b"x", 1)),
            "13",
            "invalid compressed flag, or compressed message without grpc-encoding",
        ),
        (
            headers(1) + data(1, message(b"x", 7)),
            "13",
            "invalid compressed flag, or compressed message without grpc-encoding",
        ),
        (
            headers(1, request_fields(grpc_encoding="gzip")) + data(1, message(b"no gzip", 1)),
            "13",
            "message cannot be decompressed",
        ),
        (
            headers(1, request_fields(grpc_encoding="gzip")) + data(1, message(BOMB[:-20], 1)),
            "8",
            "decompressed message exceeds the 4096 bytes allowed",
        ),
        (
            headers(1, request_fields(grpc_encoding="gzip")) + data(1, message(gzip.compress(b"x" * 50)[:-9], 1)),
            "13",
            "compressed message is truncated",
        ),
        (call(1, b"bad"), "3", "bad bytes"),
    ],
)
def test_an_invalid_call_is_refused_with_a_reason(sent: bytes, status: str, why: str) -> None:
    found = rejected(sent)
    assert (found[0], found[1][: len(why)]) == (status, why)


def test_an_unknown_compression_is_refused_with_the_supported_ones() -> None:
    peer = Http2Peer().greet()
    peer.say(call(1, b"x", grpc_encoding="snappy"))
    assert peer.answers[1].headers[-1]["grpc-accept-encoding"] == "identity,deflate,gzip"


def test_a_reason_is_percent_encoded() -> None:
    _, why = rejected(call(1, b"x", "100%\xe4\t"))
    assert why == "unknown method /test.Echo/100%25%C3%A4%09"


@pytest.mark.parametrize("kind", ["application/grpc", "application/grpc+proto", "application/grpc;x=y"])
def test_the_content_type_may_name_the_message_format(kind: str) -> None:
    peer = Http2Peer().greet()
    peer.say(call(1, b"x", content_type=kind))
    assert peer.answers[1].messages == [b"echo x"]


@pytest.mark.parametrize(
    ("name", "value", "status"),
    [
        (":method", b"GET", "405"),
        ("content-type", b"text/html", "415"),
        ("content-type", b"application/grpc-web", "415"),
    ],
)
def test_a_client_without_grpc_gets_an_http_error(name: str, value: bytes, status: str) -> None:
    peer = Http2Peer().greet()
    fields = [(key, value if key == name else own) for key, own in request_fields()]
    peer.say(headers(1, fields) + data(1, b"x"))
    assert (peer.answers[1].headers, peer.answers[1].is_ended) == ([{":status": status}], True)
    assert peer.answers[1].reset == ErrorCode.NO_ERROR


def test_an_answer_that_cannot_be_encoded_is_the_front_ends_error(caplog: pytest.LogCaptureFixture) -> None:
    peer = Http2Peer().greet()
    peer.say(call(1, b"write badly"))
    peer.moved(3)
    assert peer.answers[1].messages == [b"our fault"]
    assert "ZeroDivisionError" in caplog.text


def test_a_stream_carries_several_messages_in_both_directions() -> None:
    peer = Http2Peer().greet()
    peer.say(headers(1, request_fields("Stream")) + data(1, message(b"1") + message(b"2") + message(b"3")[:3], 0))
    peer.echo.opened[0].sink([b"unasked", b"twice"])
    peer.say(data(1, message(b"3")[3:]))
    answer = peer.answers[1]
    assert answer.messages == [b"echo 1", b"echo 2", b"unasked", b"twice", b"echo 3"]
    assert (answer.status, len(answer.headers), answer.reset) == ("0", 2, None)
    assert peer.echo.opened[0].is_closed


def test_a_stream_that_begins_with_its_end_is_ended() -> None:
    peer = Http2Peer().greet()
    peer.say(headers(1, request_fields("Stream"), END_HEADERS | END_STREAM))
    assert peer.answers[1].status == "0"
    assert peer.echo.opened[0].is_closed


def test_messages_after_an_invalid_one_on_a_stream_are_ignored() -> None:
    peer = Http2Peer().greet()
    peer.say(headers(1, request_fields("Stream")) + data(1, message(b"bad") + message(b"2"), 0) + data(1, b"late"))
    assert (peer.answers[1].status, peer.answers[1].messages) == ("3", [])


def test_a_stream_reset_by_its_client_is_closed() -> None:
    peer = Http2Peer().greet()
    peer.say(headers(1, request_fields("Stream")) + word(FrameType.RST_STREAM, 1, ErrorCode.CANCEL))
    assert peer.echo.opened[0].is_closed
    peer.echo.opened[0].sink([b"to nobody"])
    peer.read()
    assert not peer.answers


def test_a_lost_connection_leaves_nothing_behind() -> None:
    time = ManualTime(0)
    peer = Http2Peer(liveness=time).greet()
    peer.say(headers(1, request_fields("Stream", grpc_timeout="9S")) + call(3, b"wait", grpc_timeout="9S"))
    peer._pending_replies.abandon_all()  # a session does this first
    assert peer.echo.abandoned.is_set()
    peer.echo.abandoned.clear()
    peer.conversation.closed()
    assert peer.echo.opened[0].is_closed
    assert not peer.echo.abandoned.is_set(), "the call was abandoned twice"
    peer.echo.opened[0].sink([b"to nobody"])
    peer.read()
    assert (peer.answers, time.next_due_ms()) == ({}, None)


def test_a_stop_ends_the_streams_and_waits_for_the_answers_of_calls() -> None:
    peer = Http2Peer().greet()
    peer.say(headers(1, request_fields("Stream")) + call(3, b"wait"))
    closing_parts = peer.conversation.closing_parts(Stopping())
    peer.echo.held[0].resolve([b"there"])
    peer.send(closing_parts)
    peer.read()
    assert (peer.answers[1].status, peer.answers[1].headers[-1]["grpc-message"]) == ("14", "the broker is stopping")
    assert peer.answers[3].messages == [b"there"]
    assert peer.others[-1].kind == FrameType.GOAWAY
