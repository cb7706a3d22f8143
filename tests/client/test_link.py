"""One connection without IO: bytes in, outcomes out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimq.client.errors import Closed, ConnectionLost, TimedOut
from trimq.client.link import Link, Outcome, SentAnswer
from trimq.clock import ManualTime
from trimq.errors import ProtocolError
from trimq.wire.receive_buffer import copy_into
from trimq.wire.remoting import RESPONSE, Command, RemotingConnection, encode_command

SENT = {"queueOffset": "7", "MSG_REGION": "r", "msgId": "ID", "queueId": "3"}


class Ends:
    """A link and what came out of it."""

    def __init__(self) -> None:
        self.time = ManualTime(1000)
        self.outcomes: list[tuple[str, Outcome]] = []
        self.asked: list[Command] = []
        self.wakes = 0
        self.link = Link("b:1", self.time, lambda link, command: self.asked.append(command), self.wake)

    def wake(self) -> None:
        self.wakes += 1

    def request(self, name: str, deadline_ms: int = 5000) -> int:
        self.link.request(310, {"b": "t"}, b"body", deadline_ms, lambda outcome: self.outcomes.append((name, outcome)))
        return self.sent()[-1].opaque

    def sent(self) -> list[Command]:
        peer = RemotingConnection()
        peer.receive(self.link.take_output())
        found = []
        while (command := peer.next_event()) is not None:
            found.append(command)
        return found

    def receive(self, data: bytes) -> None:
        copy_into(self.link, data)


def test_a_response_ends_the_request_with_its_number() -> None:
    ends = Ends()
    first, second = ends.request("first"), ends.request("second")
    ends.receive(encode_command(17, second, RESPONSE, {}, "no topic"))
    ((name, outcome),) = ends.outcomes
    assert name == "second"
    assert isinstance(outcome, Command)
    assert (outcome.code, outcome.remark) == (17, "no topic")
    assert list(ends.link.pending) == [first]


def test_responses_to_sends_are_read_as_a_batch() -> None:
    ends = Ends()
    numbers = [ends.request(str(index)) for index in range(3)]
    ends.receive(b"".join(encode_command(0, number, RESPONSE, SENT) for number in numbers))
    assert [name for name, _ in ends.outcomes] == ["0", "1", "2"]
    for _, outcome in ends.outcomes:
        assert isinstance(outcome, SentAnswer)
        assert (outcome.extFields.queueOffset, outcome.extFields.queueId, outcome.extFields.msgId) == (7, 3, "ID")


@given(st.lists(st.integers(1, 60), max_size=12))
def test_any_split_of_the_bytes_gives_the_same_outcomes(cuts: list[int]) -> None:
    ends = Ends()
    numbers = [ends.request(str(index)) for index in range(4)]
    data = b"".join(
        encode_command(code, number, RESPONSE, SENT if code == 0 else {}, None, 3) + b"xyz"
        for code, number in zip((0, 17, 0, 2), numbers, strict=True)
    )
    at = 0
    for cut in cuts:
        ends.receive(data[at : at + cut])
        at += cut
    ends.receive(data[at:])
    assert [name for name, _ in ends.outcomes] == ["0", "1", "2", "3"]
    assert [outcome.code for _, outcome in ends.outcomes if not isinstance(outcome, Exception)] == [0, 17, 0, 2]


def test_a_request_without_response_times_out_at_its_deadline_and_a_late_response_is_ignored() -> None:
    ends = Ends()
    number = ends.request("late", deadline_ms=2000)
    ends.request("later", deadline_ms=2600)
    ends.time.step(1999)
    assert ends.outcomes == []
    ends.time.step(2000)
    assert [(name, type(outcome)) for name, outcome in ends.outcomes] == [("late", TimedOut)]
    ends.receive(encode_command(0, number, RESPONSE, SENT))
    assert len(ends.outcomes) == 1
    ends.time.step(2600)
    assert [name for name, _ in ends.outcomes] == ["late", "later"]


def test_requests_of_the_broker_are_passed_on_and_can_be_answered() -> None:
    ends = Ends()
    ends.receive(encode_command(40, 9, 0, {"consumerGroup": "g"}))
    (command,) = ends.asked
    ends.link.respond(command, 0, None, b"ok")
    (answer,) = ends.sent()
    assert (answer.opaque, answer.is_response, answer.body) == (9, True, b"ok")
    ends.link.respond(Command(40, 9, 2, 0, "JAVA", None, b""), 0)
    assert ends.sent() == []  # it was one-way


def test_output_of_many_requests_wakes_once() -> None:
    ends = Ends()
    for _ in range(5):
        ends.link.notify(34, {})
    assert ends.wakes == 1
    assert len(ends.sent()) == 5
    ends.link.notify(34, {})
    assert ends.wakes == 2


@pytest.mark.parametrize(("reason", "kind"), [("reset by peer", ConnectionLost), ("", Closed)])
def test_the_end_of_the_connection_ends_all_requests_once(reason: str, kind: type[Exception]) -> None:
    ends = Ends()
    ends.request("one"), ends.request("two")
    ends.link.close(reason)
    ends.link.close(reason)
    assert [(name, type(outcome)) for name, outcome in ends.outcomes] == [("one", kind), ("two", kind)]
    ends.time.step(100_000)
    assert len(ends.outcomes) == 2


def test_bytes_that_are_no_frame_are_a_protocol_error() -> None:
    with pytest.raises(ProtocolError):
        Ends().receive(b"HTTP/1.1 400 Bad Request\r\n\r\n")


def test_numbers_of_requests_start_again_before_they_leave_java_s_range() -> None:
    ends = Ends()
    ends.link._opaque = 2**31 - 2
    assert [ends.link.next_opaque(), ends.link.next_opaque()] == [2**31 - 1, 1]
