"""The AMQP connection without IO: decoded events, and the close that follows each violation of the protocol."""

from __future__ import annotations

import pytest
from protocols.amqp.wires import command, events, header_frame, publish, running

from trimq.errors import ProtocolError
from trimq.formats.amqp_content.property_list import EMPTY, write_properties
from trimq.protocols.amqp import methods
from trimq.protocols.amqp.wire.codes import Code, ConnectionFault, SilentClose, WrongProtocol
from trimq.protocols.amqp.wire.connection import AmqpConnection, Phase
from trimq.protocols.amqp.wire.events import Acks, Command, Greeting, Oversized, Publish
from trimq.protocols.amqp.wire.frames import BODY, HEARTBEAT_FRAME, frame

TO_Q = methods.BasicPublish(routing_key="q", is_mandatory=True)
HEADER = write_properties(content_type="a/b", delivery_mode=2)


@pytest.mark.parametrize("header", [b"AMQP\0\0\x09\x01", b"AMQP\x01\x01\x00\x09"])
def test_a_supported_protocol_header_is_an_event(header: bytes) -> None:
    connection = AmqpConnection()
    connection.receive(header[:7])
    assert connection.next_event() is None
    connection.receive(header[7:])
    assert connection.next_event() == Greeting()
    assert connection.phase is Phase.STARTING


@pytest.mark.parametrize("header", [b"GET / HTTP", b"AMQP\x01\x01\x08\x00", b"AMQP\0\0\x09\x02", b"AMQP\x00\x01\0\0"])
def test_another_header_is_refused(header: bytes) -> None:
    connection = AmqpConnection()
    connection.receive(header)
    with pytest.raises(WrongProtocol):
        connection.next_event()


def test_a_message_is_read_by_the_slow_path_then_by_the_fast_path() -> None:
    connection = running(1)
    connection.receive(publish(1, TO_Q, b"one", HEADER) + publish(1, TO_Q, b"two", HEADER) + publish(1, TO_Q, b""))
    assert events(connection) == [
        Publish(1, "", "q", True, False, HEADER, b"one"),
        Publish(1, "", "q", True, False, HEADER, b"two"),
        Publish(1, "", "q", True, False, EMPTY, b""),
    ]


def test_a_body_in_many_frames_is_assembled_and_empty_ones_are_allowed() -> None:
    connection = running(1)
    pieces = [frame(BODY, 1, piece) for piece in (b"", b"abc", b"", b"de")]
    for _ in range(2):
        connection.receive(command(1, TO_Q) + header_frame(1, 5) + b"".join(pieces))
        assert events(connection) == [Publish(1, "", "q", True, False, EMPTY, b"abcde")]


def test_contents_of_two_channels_may_interleave() -> None:
    connection = running(1, 2)
    connection.receive(command(1, TO_Q) + command(2, TO_Q) + header_frame(1, 1) + header_frame(2, 1))
    connection.receive(frame(BODY, 2, b"2") + frame(BODY, 1, b"1"))
    assert [(event.channel, event.body) for event in events(connection)] == [(2, b"2"), (1, b"1")]  # type: ignore[union-attr]


def test_consecutive_acknowledgements_are_one_event() -> None:
    connection = running(1, 2)
    acks = [(1, 1, False), (1, 2, False), (1, 3, False), (1, 9, True), (2, 1, False), (1, 10, False)]
    connection.receive(b"".join(command(channel, methods.BasicAck(tag, multiple)) for channel, tag, multiple in acks))
    assert events(connection) == [
        Acks(1, [1], False),
        Acks(1, [2, 3], False),
        Acks(1, [9], True),
        Acks(2, [1], False),
        Acks(1, [10], False),
    ]


def test_heartbeats_pass_unnoticed() -> None:
    connection = running(1)
    connection.receive(HEARTBEAT_FRAME + command(1, methods.BasicQos()) + HEARTBEAT_FRAME)
    assert events(connection) == [Command(1, methods.BasicQos())]


def test_frames_on_a_channel_that_we_closed_are_ignored_until_close_ok() -> None:
    connection = running(1)
    connection.refuse_channel(1)
    connection.receive(
        publish(1, TO_Q, b"late") + command(1, methods.QueueDeclare()) + command(1, methods.ChannelOpen())
    )
    assert events(connection) == []
    assert connection.channels == []
    connection.receive(command(1, methods.ChannelCloseOk()) + command(1, methods.ChannelOpen()))
    assert events(connection) == [Command(1, methods.ChannelOpen())]
    assert connection.channels == [1]


def test_a_channel_closed_by_both_sides_at_once_is_closed() -> None:
    connection = running(1)
    connection.refuse_channel(1)
    connection.receive(command(1, methods.ChannelClose(200, "bye")))
    assert events(connection) == [Command(1, methods.ChannelClose(200, "bye"))]


def test_a_channel_that_ended_may_be_opened_again() -> None:
    connection = running(7)
    connection.receive(publish(7, TO_Q, b"x"))
    events(connection)
    connection.end_channel(7)
    connection.receive(publish(7, TO_Q, b"x"))
    with pytest.raises(ConnectionFault, match=r"expected 'channel\.open'"):
        connection.next_event()


def test_a_message_over_the_limit_is_not_stored() -> None:
    connection = running(1, max_message_bytes=10)
    connection.receive(publish(1, TO_Q, b"x" * 10) + publish(1, TO_Q, b"x" * 11) + publish(1, TO_Q, b"x"))
    assert [type(event) for event in events(connection)] == [Publish, Oversized]
    assert connection.channels == []


def test_unfinished_messages_of_many_channels_are_bounded() -> None:
    connection = running(*range(1, 5), max_message_bytes=10)
    for channel in range(1, 5):
        connection.receive(command(channel, TO_Q) + header_frame(channel, 10) + frame(BODY, channel, b"x" * 9))
    with pytest.raises(ConnectionFault) as raised:
        events(connection)
    assert raised.value.code is Code.RESOURCE_ERROR


def test_a_length_alone_takes_no_memory() -> None:
    connection = running(1)
    connection.frame_max = 2**31
    connection.receive(b"\x01\0\1" + (2**31 - 1).to_bytes(4, "big") + bytes(100_000))
    assert connection.next_event() is None
    assert len(connection.get_buffer(1)) < 1_000_000


# (bytes sent on an open connection with channel 1 open, code, class and method)
FAULTS = [
    (b"\x01\0\1\0\0\0\4\0\x3c\0\x0aX", Code.FRAME_ERROR, (0, 0)),
    (frame(4, 1, b"abcd"), Code.FRAME_ERROR, (0, 0)),
    (frame(8, 0, b"x"), Code.FRAME_ERROR, (0, 0)),
    (b"\x03\0\1" + (140_000).to_bytes(4, "big"), Code.FRAME_ERROR, (0, 0)),
    (b"\x08\0\1\0\0\0\0\xce", Code.UNEXPECTED_FRAME, (0, 0)),
    (header_frame(0, 1), Code.UNEXPECTED_FRAME, (0, 0)),
    (header_frame(1, 0), Code.UNEXPECTED_FRAME, (0, 0)),
    (frame(BODY, 1, b"x"), Code.UNEXPECTED_FRAME, (0, 0)),
    (command(1, TO_Q) + command(1, TO_Q), Code.UNEXPECTED_FRAME, (60, 40)),
    (command(1, TO_Q) + header_frame(1, 1) + frame(BODY, 1, b"xyz"), Code.FRAME_ERROR, (60, 40)),
    (command(1, TO_Q) + header_frame(1, 1) + header_frame(1, 1), Code.UNEXPECTED_FRAME, (60, 40)),
    (command(1, TO_Q) + header_frame(1, 0, class_id=50), Code.UNEXPECTED_FRAME, (60, 40)),
    (command(1, TO_Q) + frame(2, 1, b"\0\x3c"), Code.FRAME_ERROR, (0, 0)),
    (command(1, TO_Q) + header_frame(1, 0, b"\x80\0"), Code.INTERNAL_ERROR, (0, 0)),
    (command(1, TO_Q) + frame(2, 1, b"\0\x3c\0\1" + bytes(10)), Code.UNEXPECTED_FRAME, (60, 40)),
    (frame(1, 1, b"\0\x3c\0\xc8"), Code.FRAME_ERROR, (60, 200)),
    (frame(1, 1, b"\0"), Code.FRAME_ERROR, (0, 0)),
    (command(1, methods.BasicGet(queue="q")).replace(b"\1q", b"\1\xff"), Code.FRAME_ERROR, (0, 0)),
    (frame(1, 1, b"\0\x32\0\x0a"), Code.FRAME_ERROR, (50, 10)),
    (command(1, methods.BasicDeliver()) + command(1, TO_Q), Code.UNEXPECTED_FRAME, (60, 60)),
    (command(1, methods.BasicDeliver()) + header_frame(1, 0), Code.COMMAND_INVALID, (60, 60)),
    (command(0, methods.BasicQos()), Code.CHANNEL_ERROR, (60, 10)),
    (command(1, methods.ConnectionOpen(vhost="/")), Code.COMMAND_INVALID, (10, 40)),
    (command(2, methods.BasicQos()), Code.CHANNEL_ERROR, (60, 10)),
    (command(2, TO_Q), Code.CHANNEL_ERROR, (60, 40)),
    (command(1, methods.ChannelOpen()), Code.CHANNEL_ERROR, (20, 10)),
]


@pytest.mark.parametrize(("sent", "code", "ids"), FAULTS)
def test_a_protocol_violation_ends_the_connection_with_its_code(sent: bytes, code: Code, ids: tuple[int, int]) -> None:
    connection = running(1)
    connection.receive(sent)
    with pytest.raises(ConnectionFault) as raised:
        events(connection)
    assert (raised.value.code, (raised.value.class_id, raised.value.method_id)) == (code, ids)
    assert raised.value.text.startswith(code.name if code is Code.INTERNAL_ERROR else f"{code.name} - ")


def test_a_protocol_violation_is_found_on_the_fast_path_too() -> None:
    for sent, code, _ in FAULTS:
        connection = running(1)
        connection.receive(publish(1, TO_Q, b"x") + command(1, methods.BasicAck(1)) + sent)
        with pytest.raises(ConnectionFault) as raised:
            events(connection)
        assert raised.value.code is code


@pytest.mark.parametrize("place", ["end of the header", "end of the body", "flags"])
def test_a_message_that_begins_like_the_last_one_is_still_checked(place: str) -> None:
    connection = running(1)
    connection.receive(publish(1, TO_Q, b"x"))
    assert len(events(connection)) == 1
    raw = bytearray(publish(1, TO_Q, b"x"))
    start = len(command(1, TO_Q))
    raw[{"end of the header": start + 21, "end of the body": -1, "flags": start + 19}[place]] = 1
    connection.receive(raw)
    with pytest.raises(ConnectionFault) as raised:
        connection.next_event()
    assert raised.value.code is (Code.INTERNAL_ERROR if place == "flags" else Code.FRAME_ERROR)


MALFORMED_TABLE = command(1, methods.QueueDeclare(arguments={"a": True})).replace(b"\1at\1", b"\1a?\1")


@pytest.mark.parametrize("sent", [frame(1, 1, b"\0\x3d\0\x0a"), frame(1, 1, b"\0\x3c\0\xff"), MALFORMED_TABLE])
def test_an_unknown_method_and_a_malformed_table_close_silently(sent: bytes) -> None:
    connection = running(1)
    connection.receive(sent)
    with pytest.raises(SilentClose):
        connection.next_event()


@pytest.mark.parametrize("sent", [command(3, methods.ChannelOpen()), command(3, methods.BasicAck(1)), frame(3, 3, b"")])
def test_more_channels_than_agreed_end_the_connection_whatever_is_sent_on_them(sent: bytes) -> None:
    connection = running(1, 9)
    connection.channel_max = 2
    connection.receive(sent)
    with pytest.raises(ConnectionFault, match="channel_max") as raised:
        connection.next_event()
    assert (raised.value.code, raised.value.class_id) == (Code.NOT_ALLOWED, 0)


@pytest.mark.parametrize("phase", [phase for phase in Phase if phase not in (Phase.GREETING, Phase.RUNNING)])
def test_before_it_is_open_a_connection_accepts_only_the_expected_methods(phase: Phase) -> None:
    expected = {
        Phase.STARTING: methods.ConnectionStartOk(),
        Phase.SECURING: methods.ConnectionSecureOk(),
        Phase.TUNING: methods.ConnectionTuneOk(),
        Phase.OPENING: methods.ConnectionOpen(),
    }
    for method in [*expected.values(), methods.ConnectionClose(), methods.ConnectionCloseOk()]:
        connection = AmqpConnection()
        connection.phase = phase
        connection.receive(command(0, method))
        if method == expected.get(phase):
            assert connection.next_event() == Command(0, method)
        else:
            with pytest.raises(ProtocolError):
                connection.next_event()
    connection = AmqpConnection()
    connection.phase = phase
    connection.receive(command(1, methods.ChannelOpen()))
    with pytest.raises(ConnectionFault) as raised:
        connection.next_event()
    assert raised.value.code is Code.UNEXPECTED_FRAME


def test_many_channels_are_opened_and_closed() -> None:
    connection = running()
    for number in range(1, 5000):
        channel = number % 60_000 + 1
        connection.receive(command(channel, methods.ChannelOpen()))
        assert events(connection)
        connection.end_channel(channel)
    assert connection.channels == []
