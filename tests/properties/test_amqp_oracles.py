"""TriMQ's AMQP codec against two others: pika's specification and pamqp."""

from __future__ import annotations

import pamqp.commands
import pamqp.decode
import pamqp.frame
import pika.data
import pika.frame
import pika.spec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from protocols.amqp.strategies import any_method, examples, methods_of, plain_tables
from protocols.amqp.wires import command, events, running

from trimq.formats.amqp_content.field_tables import read_table, write_table
from trimq.formats.amqp_content.property_list import PROPERTIES, read_properties, write_properties
from trimq.protocols.amqp import methods
from trimq.protocols.amqp.wire.contents import write_content
from trimq.protocols.amqp.wire.events import Publish
from trimq.protocols.amqp.wire.method_codec import read_method, write_method


def normalised(value: object) -> object:
    """Removes differences between libraries: a long string may be text, and an absent table None."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return value or None if isinstance(value, dict) else value


def fields_of(method: methods.Method) -> list[object]:
    return [normalised(getattr(method, name)) for name in method.__struct_fields__]


@examples(200)
@given(any_method(is_plain=True))
def test_pika_decodes_our_methods_and_we_its(method: methods.Method) -> None:
    kind = pika.spec.methods[method.ID]
    theirs = kind.__new__(kind).decode(write_method(method), 4)
    assert [normalised(value) for value in vars(theirs).values()] == fields_of(method)
    written = kind(*(getattr(method, name) for name in method.__struct_fields__)).encode()
    assert read_method(method.ID.to_bytes(4, "big") + b"".join(written)) == method


OF_PAMQP = [kind for kind in methods.METHODS.values() if not kind.NAME.startswith("access.")]


@pytest.mark.filterwarnings("ignore:This command is deprecated")
@examples(150)
@given(st.sampled_from(OF_PAMQP).flatmap(lambda kind: methods_of(kind, is_plain=True)))
def test_pamqp_decodes_our_methods(method: methods.Method) -> None:
    raw = command(1, method)
    size, channel, theirs = pamqp.frame.unmarshal(raw)
    assert (size, channel) == (len(raw), 1)
    assert [normalised(getattr(theirs, name)) for name in theirs.attributes()] == fields_of(method)


def test_pika_and_pamqp_know_the_methods_that_we_know() -> None:
    assert set(pika.spec.methods) == set(methods.METHODS)
    assert set(pamqp.commands.INDEX_MAPPING) == {kind.ID for kind in OF_PAMQP}


@examples(100)
@given(plain_tables)
def test_pika_and_pamqp_read_our_tables_and_we_theirs(table: dict[str, object]) -> None:
    raw = write_table(table)
    assert pika.data.decode_table(raw, 0) == (table, len(raw))
    assert pamqp.decode.field_table(raw) == (len(raw), table)
    pieces: list[bytes] = []
    pika.data.encode_table(pieces, table)
    written = b"".join(pieces)
    assert read_table(written, 0, len(written)) == (table, len(written))


ALL = {
    "content_type": "text/plain",
    "content_encoding": "gzip",
    "headers": {"a": 1, "b": ["x"]},
    "delivery_mode": 2,
    "priority": 7,
    "correlation_id": "c",
    "reply_to": "r",
    "expiration": "60000",
    "message_id": "m",
    "timestamp": 1_700_000_000,
    "type": "t",
    "user_id": "u",
    "app_id": "a",
    "cluster_id": "l",
}


@examples(100)
@given(st.sets(st.sampled_from(sorted(PROPERTIES))))
def test_pika_reads_our_properties_and_we_its(chosen: set[str]) -> None:
    properties = {name: value for name, value in ALL.items() if name in chosen}
    ours = write_properties(**properties)
    theirs = pika.spec.BasicProperties().decode(ours)
    assert {name: value for name, value in vars(theirs).items() if value is not None} == properties
    assert read_properties(b"".join(pika.spec.BasicProperties(**properties).encode())) == properties


@pytest.mark.parametrize("size", [0, 1, 4088, 9000])
def test_pika_decodes_our_frames_and_we_its(size: int) -> None:
    body = b"x" * size
    header = write_properties(**ALL)
    raw = b"".join(write_content(1, header, body, 4096))
    used, found = pika.frame.decode_frame(raw)
    assert (found.body_size, vars(found.properties)) == (size, vars(pika.spec.BasicProperties(**ALL)))
    connection = running(1)
    connection.receive(pika.frame.Method(1, pika.spec.Basic.Publish(0, "e", "k", True)).marshal())
    connection.receive(pika.frame.Header(1, size, pika.spec.BasicProperties(**ALL)).marshal())
    if body:
        connection.receive(pika.frame.Body(1, body).marshal())
    (publish,) = events(connection)
    assert isinstance(publish, Publish)
    assert (publish.exchange, publish.key, publish.is_mandatory, publish.body) == ("e", "k", True, body)
    assert used == len(raw) - sum(8 + len(body[at : at + 4088]) for at in range(0, size, 4088))
