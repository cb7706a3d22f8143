"""Encoded messages, as the broker's decoders read them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimq.client.errors import BadMessage
from trimq.client.messages import Message
from trimq.client.sending.encoding import (
    RESERVED,
    MessageIds,
    encode_batch_body,
    encode_send,
    send_fields,
    write_message_properties,
)
from trimq.formats.rocketmq_unit.batch_body import read_batch
from trimq.formats.rocketmq_unit.properties import read_properties
from trimq.protocols.rocketmq.handlers.send_batch import SEND_HEADER_PREFIXES, decode_request
from trimq.protocols.rocketmq.wire.headers import SendV2Header
from trimq.wire.remoting import RemotingConnection

NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\x00\x01\x02"), min_size=1, max_size=20)


@given(NAMES, NAMES, NAMES, st.integers(0, 100), st.booleans(), st.booleans())
def test_the_broker_reads_the_header_that_was_written(
    group: str, topic: str, value: str, queue: int, is_one_way: bool, is_batch: bool
) -> None:
    properties = f"a\x01{value}\x02"
    head = encode_send(
        group, topic, queue, properties, 4, 77, 123, sys_flag=4, is_one_way=is_one_way, is_batch=is_batch
    )
    connection = RemotingConnection()
    connection.receive(head + b"body")
    command = connection.next_event()
    assert command is not None
    assert (command.code, command.opaque, command.is_one_way) == (320 if is_batch else 310, 77, is_one_way)
    header = command.read(SendV2Header)
    assert (header.producerGroup, header.topic, header.queueId) == (group, topic, queue)
    assert (header.properties, header.sysFlag, header.bornTimestamp, header.batch) == (properties, 4, 123, is_batch)
    assert command.fields == send_fields(group, topic, queue, properties, 123, sys_flag=4, is_batch=is_batch)


def test_the_broker_s_fast_path_takes_the_header() -> None:
    head = encode_send("g", "t", 1, "UNIQ_KEY\x01a\x02", 4, 5, 6)
    assert head[8:].startswith(SEND_HEADER_PREFIXES)
    assert decode_request(head[8:]).extFields.topic == "t"


def test_all_parts_of_a_message_become_properties() -> None:
    at = datetime(2027, 1, 1, tzinfo=UTC)
    message = Message(b"x", "42", "paid", ["a", "b"], {"colour": "réd"}, deliver_at=at, ttl=timedelta(seconds=5))
    assert read_properties(write_message_properties(message, "ID", [("PGROUP", "g")])) == {
        "UNIQ_KEY": "ID",
        "WAIT": "true",
        "__SHARDINGKEY": "42",
        "TAGS": "paid",
        "KEYS": "a b",
        "colour": "réd",
        "TIMER_DELIVER_MS": "1798761600000",
        "TRIMQ_TTL_MS": "5000",
        "PGROUP": "g",
    }


@pytest.mark.parametrize(
    ("message", "complaint"),
    [
        *((Message(b"x", headers={name: "1"}), "meaning of its own") for name in sorted(RESERVED)),
        (Message(b"x", headers={"TRIMQ_ONCE": "1"}), "meaning of its own"),
        (Message(b"x", headers={"a": "\x02"}), "U\\+0000"),
        (Message(b"x", headers={"a\x01": "b"}), "U\\+0000"),
        (Message(b"x", headers={"a": ""}), "must not be empty"),
        (Message(b"x", headers={"a": 1}), "must be a str"),  # type: ignore[dict-item]
        (Message(b"x", headers={"a": "b" * 40_000}), "more than"),
        (Message(b"x", tag="a||b"), r"\|\|"),
        (Message(b"x", tag=" a"), "blanks"),
        (Message(b"x", keys=["a b"]), "blank"),
        (Message(b"x", keys=[""]), "empty"),
        (Message(b"x", key="\x00"), "U\\+0000"),
        (Message(b"x", level=19), "1 to 18"),
        (Message(b"x", level=0), "1 to 18"),
        (Message(b"x", level=3, delay=1), "one of"),
        (Message(b"x", deliver_at=datetime(2027, 1, 1)), "time zone"),
    ],
)
def test_what_brokers_would_misread_is_refused(message: Message, complaint: str) -> None:
    with pytest.raises(BadMessage, match=complaint):
        write_message_properties(message, "ID")


def test_ids_have_32_characters_and_differ() -> None:
    ids = MessageIds()
    made = [ids.next() for _ in range(1000)]
    assert len({*made}) == 1000
    assert {len(each) for each in made} == {32}
    assert len({each[:20] for each in made}) == 1  # the broker hashes this part once
    assert MessageIds().next()[:20] != made[0][:20]


@given(st.lists(st.tuples(st.binary(min_size=1), NAMES), min_size=1, max_size=5))
def test_a_batch_is_read_as_it_was_written(messages: list[tuple[bytes, str]]) -> None:
    found = [(bytes(entry.body), entry.properties.decode()) for entry in read_batch(encode_batch_body(messages))]
    assert found == messages
