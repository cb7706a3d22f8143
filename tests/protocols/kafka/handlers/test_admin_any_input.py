"""Administration with random values: the broker answers every request, and keeps answering."""

from __future__ import annotations

from contextlib import nullcontext, suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from protocols.kafka.desk import Desk
from protocols.kafka.strategies import examples, restricted, structs, versions_of

from trimq.errors import ProtocolError
from trimq.formats.kafka_batch.builder import from_records
from trimq.model import Record
from trimq.protocols.kafka.messages.metadata import MetadataRequest
from trimq.protocols.kafka.messages.schema import Struct
from trimq.protocols.kafka.wire.apis import request_class

# Words and numbers with a meaning in some request, so that more than the first check of a handler is reached.
WORDS = st.sampled_from(
    ["t", "keyed", "u", "", "a b", "__consumer_offsets", "1", "retention.ms", "cleanup.policy", "compact", "-1", "100",
     "producer_byte_rate", "user", "client-id", "ip", "preallocate", "x" * 300, "\ud7ff"]
)  # fmt: skip
NUMBERS = st.sampled_from([-2, -1, 0, 1, 2, 4, 9, 100])  # one byte each

CLOSING_KEYS = (29, 30, 31)
"""As in a genuine Kafka, an element UNKNOWN of these closes the connection."""
ADMIN_KEYS = [2, 3, 19, 20, 21, 23, 29, 30, 31, 32, 33, 35, 37, 43, 44, 45, 46, 48, 49, 50, 51, 60, 74, 75]


def bend(value: Any, draw: st.DataObject, id: bytes) -> Any:
    """Replaces some words, numbers and ids of a message by known ones."""
    if isinstance(value, Struct):
        for field in value.FIELDS:
            setattr(value, field.name, bend(getattr(value, field.name), draw, id))
        return value
    if isinstance(value, list):
        return [bend(each, draw, id) for each in value]
    if isinstance(value, bool | float) or value is None or not draw.draw(st.booleans()):
        return value
    if isinstance(value, bytes):
        return id if len(value) == 16 else value
    return draw.draw(WORDS) if isinstance(value, str) else draw.draw(NUMBERS)


@pytest.mark.parametrize("api_key", ADMIN_KEYS)
@examples(20)
@given(draw=st.data())
def test_every_request_is_answered(api_key: int, draw: st.DataObject) -> None:
    desk = Desk(limits={"streams_per_topic": 20})
    id = desk.create("t", 2).topic_id
    desk.create("keyed", cleanup_policy="compact")
    desk.produce("t", from_records([Record(b"x", b"k", timestamp_ms=5)]))
    kind = request_class(api_key)
    version = draw.draw(st.sampled_from(versions_of(kind)))
    for _ in range(2):
        message = bend(draw.draw(structs(kind)), draw, id)
        with suppress(ProtocolError) if api_key in CLOSING_KEYS else nullcontext():
            desk.ask(restricted(message, version), version)
    assert len(desk.ask(MetadataRequest(topics=None)).brokers) == 1
