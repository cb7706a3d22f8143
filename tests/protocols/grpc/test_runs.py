"""Batches of plain calls that arrive together: handled and answered in one step, with the same result as one by one."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from protocols.grpc.echo_bench import SMALL
from protocols.grpc.http2_peer import Http2Peer, call, data, headers, message, request_fields, word

from trimq.clock import ManualTime
from trimq.errors import Stopping
from trimq.protocols.grpc.calls import UnaryCall, UnaryCalls
from trimq.protocols.grpc.frames import ErrorCode, FrameType, Http2ConnectionError, frame, window_update
from trimq.wire.receive_buffer import ReceiveMemory


def peer_of(**given: int) -> Http2Peer:
    return Http2Peer(SMALL._replace(**given), gathers=True).greet()


def answers_of(peer: Http2Peer) -> dict[int, list[bytes]]:
    return {number: answer.messages for number, answer in sorted(peer.answers.items())}


def test_calls_of_a_batch_are_executed_together_and_answered_when_durable() -> None:
    peer = peer_of()
    peer.say(call(1, b"run 1") + call(3, b"run 3") + call(5, b"run 5"))
    assert peer.echo.taken == [[b"run 1", b"run 3", b"run 5"]]
    assert (peer.owed, answers_of(peer)) == (3, {})
    peer.moved(2)
    assert (peer.owed, answers_of(peer)) == (3, {})
    peer.moved(3)
    assert (peer.owed, answers_of(peer)) == (0, {1: [b"echo run 1"], 3: [b"echo run 3"], 5: [b"echo run 5"]})
    assert {answer.status for answer in peer.answers.values()} == {"0"}
    assert not peer.conversation._http2.streams


def test_a_batch_is_not_longer_than_its_limit() -> None:
    peer = peer_of()
    peer.say(b"".join(call(number, b"run") for number in range(1, 25, 2)))
    assert [len(taken) for taken in peer.echo.taken] == [5, 5, 2]


def test_a_special_call_is_made_alone_in_its_place() -> None:
    peer = peer_of()
    peer.say(call(1, b"run 1") + call(3, b"x") + call(5, b"run 5") + call(7, b"run into a bug") + call(9, b"bug"))
    assert peer.echo.taken == [[b"run 1"], [b"run 5"]]
    assert len(peer.echo.call_info) == 3
    peer.moved(3)
    assert answers_of(peer) == {
        1: [b"echo run 1"],
        3: [b"echo x"],
        5: [b"echo run 5"],
        7: [b"echo run into a bug"],
        9: [b"our fault"],
    }


def test_a_call_of_another_method_ends_a_batch() -> None:
    peer = peer_of()
    peer.say(call(1, b"run 1") + call(3, b"run 3", "Parts") + call(5, b"run 5"))
    assert peer.echo.taken == [[b"run 1"], [b"run 5"]]
    assert answers_of(peer) == {3: [b"a", b"b"]}


def test_calls_with_different_timeouts_are_answered_together() -> None:
    time = ManualTime(0)
    peer = Http2Peer(liveness=time, gathers=True).greet()
    peer.say(call(1, b"run 1", grpc_timeout="1S") + call(3, b"run 3", grpc_timeout="2S"))
    assert peer.echo.taken == [[b"run 1", b"run 3"]]
    assert time.next_due_ms() is None  # calls that wait only for the disk have no time-out
    peer.moved(3)
    assert [answer.status for answer in peer.answers.values()] == ["0", "0"]


def test_a_cancelled_call_of_a_batch_is_not_answered() -> None:
    peer = peer_of()
    peer.say(
        call(1, b"run 1") + call(3, b"run 3") + word(FrameType.RST_STREAM, 1, ErrorCode.CANCEL) + call(5, b"run 5")
    )
    assert peer.echo.taken == [[b"run 1", b"run 3"], [b"run 5"]]
    peer.say(word(FrameType.RST_STREAM, 5, ErrorCode.CANCEL))
    peer.moved(3)
    assert (peer.owed, answers_of(peer)) == (0, {3: [b"echo run 3"]})


def test_a_connection_that_ends_cancels_its_batch() -> None:
    peer = peer_of()
    peer.say(call(1, b"run 1") + call(3, b"run 3"))
    peer.conversation.closed()
    peer.moved(3)
    assert answers_of(peer) == {}


def test_answers_of_a_batch_wait_for_the_window_of_the_connection() -> None:
    peer = Http2Peer(gathers=True, window=65_535).greet()
    raw = b"run" + b"x" * 4000
    numbers = range(1, 41, 2)
    for number in numbers:
        peer.say(call(number, raw))
    peer.moved(3)
    ended = [number for number, answer in peer.answers.items() if answer.is_ended]
    assert ended == [*numbers][: 65_535 // (len(raw) + 10)]
    assert peer.conversation._http2.send_window.held_bytes
    peer.say(window_update(0, 65_535))
    assert answers_of(peer) == {number: [b"echo " + raw] for number in numbers}
    assert {answer.status for answer in peer.answers.values()} == {"0"}
    assert peer.conversation._http2.send_window.held_bytes == 0


def test_an_answer_of_a_batch_waits_for_its_own_window_and_no_other_does() -> None:
    peer = Http2Peer(gathers=True, window=20).greet()
    peer.say(call(1, b"run") + call(3, b"run" + b"x" * 30) + call(5, b"run"))
    peer.moved(3)
    assert [peer.answers[number].is_ended for number in (1, 3, 5)] == [True, False, True]
    peer.say(window_update(3, 100))
    assert peer.answers[3].messages == [b"echo run" + b"x" * 30]


def test_a_client_that_does_not_read_its_answers_gets_no_more_until_it_reads() -> None:
    peer = Http2Peer(SMALL._replace(unsent_bytes=1000), window=65_535, gathers=True).greet()
    peer.say(headers(1, request_fields()) + data(1, message(b"x" * 4000)) + word(FrameType.WINDOW_UPDATE, 0, 1))
    peer.conversation._http2.send_window.window = 0
    peer.say(call(3, b"x" * 2000) + call(5, b"run 5") + call(7, b"run 7"))
    assert peer.echo.taken == []
    peer.say(window_update(0, 100_000))
    assert [raw for taken in peer.echo.taken for raw in taken] == [b"run 5", b"run 7"]
    peer.moved(3)
    assert (peer.answers[5].messages, peer.answers[7].messages) == ([b"echo run 5"], [b"echo run 7"])


@pytest.mark.parametrize("raw", [b"run bug", b"run badly"])
def test_a_failed_batch_is_answered_with_the_error(raw: bytes) -> None:
    peer = peer_of()
    peer.say(call(1, b"run 1") + call(3, raw))
    peer.moved(3)
    assert answers_of(peer) == {1: [b"our fault"], 3: [b"our fault"]}
    peer.say(call(5, b"run 5"))
    assert peer.answers[5].messages == [b"echo run 5"]


def test_calls_before_a_broken_frame_are_executed() -> None:
    peer = peer_of()
    with pytest.raises(Http2ConnectionError):
        peer.say(call(1, b"run 1") + call(3, b"run 3") + frame(FrameType.PING, 0, 0, b"short"))
    assert peer.echo.taken == [[b"run 1", b"run 3"]]
    peer.moved(3)
    assert list(answers_of(peer)) == [1, 3]


def test_a_batch_is_one_event_with_its_method() -> None:
    peer = peer_of()
    peer.say(call(1, b"run 1") + call(3, b"run 3"))
    (event,) = peer.events
    assert isinstance(event, UnaryCalls)
    assert event.title == "Plain calls"


RAWS = st.sampled_from([b"run", b"run 2", b"x", b"write", b"bug", b"bad", b"run into a bug", b"run " + b"y" * 90])


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(RAWS, st.booleans()), max_size=20), st.integers(1, 4000))
def test_a_batch_is_answered_as_single_calls_are(calls: list[tuple[bytes, bool]], piece: int) -> None:
    receive_memory, alone = Http2Peer(gathers=True).greet(), Http2Peer().greet()
    for peer in (receive_memory, alone):
        sent = b"".join(
            call(2 * at + 1, raw) + (word(FrameType.RST_STREAM, 2 * at + 1, ErrorCode.CANCEL) if is_given_up else b"")
            for at, (raw, is_given_up) in enumerate(calls)
        )
        peer.say(sent, piece)
        peer.moved(3)
    gone = {2 * at + 1 for at, (_, is_given_up) in enumerate(calls) if is_given_up}
    for number in {*receive_memory.answers, *alone.answers} - gone:
        got, expected = receive_memory.answers[number], alone.answers[number]
        assert (got.headers, got.messages, got.is_ended) == (expected.headers, expected.messages, expected.is_ended)
    assert receive_memory.owed == alone.owed == 0
    assert not receive_memory.conversation._http2.streams


def test_a_long_call_behind_a_batch_is_counted_until_its_turn() -> None:
    receive_memory = ReceiveMemory()
    peer = Http2Peer(SMALL._replace(message_bytes=1 << 20), gathers=True, receive_memory=receive_memory).greet()
    taking, peer.conversation.next_event = peer.conversation.next_event, lambda: None  # type: ignore[method-assign]
    peer.feed(call(1, b"run 1") + call(3, b"x" * 10_000))
    event = taking()
    assert isinstance(event, UnaryCalls)
    assert receive_memory.count == 10_000
    peer.conversation.handle(event)
    following = taking()
    assert isinstance(following, UnaryCall)
    assert (len(following.raw), receive_memory.count) == (10_000, 0)


@pytest.mark.parametrize("is_stopping", [True, False])
def test_a_call_that_was_read_and_not_made_is_refused_when_its_connection_ends(is_stopping: bool) -> None:
    peer = peer_of()
    next_event, peer.conversation.next_event = peer.conversation.next_event, lambda: None  # type: ignore[method-assign]
    peer.feed(call(1, b"run 1") + call(3, b"x"))
    event = next_event()
    assert type(event) is UnaryCalls
    assert len(event.streams) == 1
    peer.send(
        peer.conversation.closing_parts(
            Stopping() if is_stopping else Http2ConnectionError(ErrorCode.PROTOCOL_ERROR, "")
        )
    )
    peer.moved(3)
    assert {number: answer.reset for number, answer in peer.answers.items() if answer.reset} == {
        3: ErrorCode.REFUSED_STREAM
    }
