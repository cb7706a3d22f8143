"""AMQP's bytes give the same events however they are split; damaged bytes give events or a protocol error."""

from __future__ import annotations

import contextlib

from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from protocols.amqp.strategies import any_method, examples, methods_of, properties, tables, unsigned, values
from protocols.amqp.wires import command, events, publish, running

from trimq.errors import ProtocolError
from trimq.formats.amqp_content.field_tables import BadField, read_table, read_value, write_table, write_value
from trimq.formats.amqp_content.property_list import check_properties, read_properties, replace
from trimq.protocols.amqp import methods
from trimq.protocols.amqp.wire.connection import AmqpConnection
from trimq.protocols.amqp.wire.events import Acks, Command, Event, Publish
from trimq.protocols.amqp.wire.frames import HEARTBEAT_FRAME
from trimq.protocols.amqp.wire.method_codec import read_method, write_method

CHANNELS = (1, 2, 300)
COMMANDS = (methods.QueueDeclare, methods.BasicGet, methods.BasicNack, methods.ExchangeBind, methods.TxSelect)

channels = st.sampled_from(CHANNELS)
# Few different values, so that repeated messages take the fast path.
publishes = st.builds(
    lambda channel, exchange, key, mandatory, header, body, piece: (
        publish(channel, methods.BasicPublish(0, exchange, key, mandatory), body, header, piece),
        Publish(channel, exchange, key, mandatory, False, header, body),
    ),
    channels,
    st.sampled_from(["", "amq.topic"]),
    st.sampled_from(["", "q", "schlüssel"]),
    st.booleans(),
    properties,
    st.binary(max_size=60),
    st.integers(1, 80),
)
acks = st.builds(
    lambda channel, tag, multiple: (command(channel, methods.BasicAck(tag, multiple)), (channel, tag, multiple)),
    channels,
    unsigned(64),
    st.booleans(),
)
commands = st.builds(
    lambda channel, method: (command(channel, method), Command(channel, method)),
    channels,
    st.one_of(*map(methods_of, COMMANDS)),
)
heartbeats = st.just((HEARTBEAT_FRAME, None))
streams = st.lists(st.one_of(publishes, acks, commands, heartbeats), max_size=15)


def flat(found: list[Event]) -> list[object]:
    """Splits batches of acknowledgements: the size of a batch depends on the bytes that arrive together."""
    result: list[object] = []
    for event in found:
        if isinstance(event, Acks):
            result += [(event.channel, tag, event.is_multiple) for tag in event.tags]
        else:
            result.append(event)
    return result


def pieces_of(data: bytes, cuts: list[int]) -> list[bytes]:
    ends = sorted({min(cut, len(data)) for cut in cuts} | {len(data)})
    return [data[start:end] for start, end in zip([0, *ends], ends, strict=False)]


@examples(100)
@given(streams, st.lists(st.integers(0, 4000), max_size=12), st.booleans())
def test_any_split_of_the_bytes_gives_the_same_events(
    sent: list[tuple[bytes, object]], cuts: list[int], patient: bool
) -> None:
    connection = running(*CHANNELS)
    found: list[Event] = []
    for piece in pieces_of(b"".join(raw for raw, _ in sent), cuts):
        connection.receive(piece)
        if not patient:
            found += events(connection)
    found += events(connection)
    assert flat(found) == [expected for _, expected in sent if expected is not None]


@examples(100)
@given(streams, st.lists(st.integers(0, 4000), max_size=12), st.integers(1, 4))
def test_messages_read_in_batches_are_the_same(sent: list[tuple[bytes, object]], cuts: list[int], most: int) -> None:
    connection = running(*CHANNELS)
    found: list[Event] = []
    for piece in pieces_of(b"".join(raw for raw, _ in sent), cuts):
        connection.receive(piece)
        while (event := connection.next_event()) is not None:
            found.append(event)
            if isinstance(event, Publish):
                following = connection.next_similar(event, most)
                assert len(following) <= most
                assert all(header[:2] == event.header[:2] for header, _ in following)
                found += [structs.replace(event, header=header, body=body) for header, body in following]
    assert flat(found) == [expected for _, expected in sent if expected is not None]


@examples(30)
@given(streams)
def test_byte_by_byte_gives_the_same_events(sent: list[tuple[bytes, object]]) -> None:
    connection = running(*CHANNELS)
    found: list[Event] = []
    for byte in b"".join(raw for raw, _ in sent):
        connection.receive(bytes((byte,)))
        found += events(connection)
    assert flat(found) == [expected for _, expected in sent if expected is not None]


@examples(100)
@given(streams, st.lists(st.tuples(st.integers(0, 3000), st.binary(min_size=1, max_size=4)), min_size=1, max_size=5))
def test_damaged_bytes_give_events_or_a_protocol_error(
    sent: list[tuple[bytes, object]], damages: list[tuple[int, bytes]]
) -> None:
    raw = bytearray(b"".join(raw for raw, _ in sent))
    for at, change in damages:
        raw[at : at + len(change)] = change
    connection = running(*CHANNELS)
    connection.receive(raw)
    with contextlib.suppress(ProtocolError):
        events(connection)


@examples(100)
@given(st.binary(max_size=200), st.booleans())
def test_garbage_gives_events_or_a_protocol_error(garbage: bytes, is_running: bool) -> None:
    connection = running(*CHANNELS) if is_running else AmqpConnection()
    connection.receive(garbage)
    with contextlib.suppress(ProtocolError):
        events(connection)


@examples(200)
@given(any_method())
def test_a_method_with_any_fields_survives_encoding_and_decoding(method: methods.Method) -> None:
    assert read_method(write_method(method)) == method


@examples(100)
@given(values)
def test_a_value_of_any_type_is_encoded_again_with_the_same_bytes(value: object) -> None:
    raw = write_value(value)
    read, end = read_value(raw, 0, len(raw))
    assert (read, type(read), end) == (value, type(value), len(raw))
    assert write_value(read) == raw


@examples(200)
@given(st.binary(max_size=60))
def test_a_table_of_any_bytes_is_read_or_refused(garbage: bytes) -> None:
    with contextlib.suppress(BadField):
        table, end = read_table(garbage, 0, len(garbage))
        assert end <= len(garbage)
        assert read_table(write_table(table), 0, len(write_table(table)))


@examples(60)
@given(properties, tables)
def test_headers_are_replaced_and_nothing_else(header: bytes, headers: dict[str, object]) -> None:
    changed = replace(header, headers=headers)
    check_properties(changed)
    assert replace(changed, headers=None) == replace(header, headers=None)
    assert {**read_properties(header), "headers": headers} == read_properties(changed)


@examples(200)
@given(st.binary(min_size=2, max_size=40))
def test_a_property_list_of_any_bytes_is_read_or_refused(garbage: bytes) -> None:
    with contextlib.suppress(BadField):
        check_properties(garbage)
        changed = replace(garbage)  # without flags that stand for no property
        assert replace(changed) == changed
        assert read_properties(changed) == read_properties(garbage)
