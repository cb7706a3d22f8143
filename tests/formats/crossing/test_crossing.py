"""What one layout stores for another comes back as it was sent."""

from __future__ import annotations

from typing import Any

import pytest
from formats.crossing.strategies import contents, records, units
from hypothesis import given

from trimq.formats.amqp_content.content import Content
from trimq.formats.amqp_content.property_list import read_properties, replace
from trimq.formats.crossing import amqp, kafka, rocketmq
from trimq.formats.crossing.neutral import Neutral
from trimq.formats.crossing.rocketmq import UnitFields, is_own
from trimq.formats.rocketmq_unit.properties import read_properties as read_unit_properties
from trimq.formats.rocketmq_unit.properties import write_properties
from trimq.formats.rocketmq_unit.unit import UnitDraft, encode_unit, read_unit
from trimq.model import Record

QUEUE = "orders"
HOST = b"\x7f\0\0\1\0\0\0\1"
LEFT_OUT = ("MSG_REGION", "TRACE_ON", "CLUSTER", "WAIT")


def in_unit(message: Neutral) -> Neutral:
    """The message after a stay in a RocketMQ topic."""
    fields = rocketmq.from_neutral(message)
    draft = UnitDraft(
        b"t", 0, fields.body, write_properties(fields.properties), fields.flag, 0, fields.born_ms,
        fields.born_host or HOST, fields.reconsume_times,
    )  # fmt: skip
    return rocketmq.to_neutral(read_unit(encode_unit(draft, 0, 0, 0, HOST)))


def in_content(message: Neutral) -> Neutral:
    return amqp.to_neutral(amqp.from_neutral(message, QUEUE), QUEUE)


def in_record(message: Neutral) -> Neutral:
    return kafka.to_neutral(kafka.from_neutral(message))


HOMES = {"kafka": in_record, "rocketmq": in_unit, "amqp": in_content}


@pytest.mark.parametrize("home", ["rocketmq", "amqp"])
def test_a_record_comes_back_from_another_layout_as_it_was_sent(home: str) -> None:
    @given(records)
    def check(record: Record) -> None:
        assert kafka.from_neutral(HOMES[home](kafka.to_neutral(record, is_stored=False))) == record

    check()


@pytest.mark.parametrize("home", ["kafka", "amqp"])
def test_a_unit_comes_back_without_the_broker_s_own_words(home: str) -> None:
    @given(units)
    def check(unit: UnitFields) -> None:
        expected = {
            name: value
            for name, value in unit.properties.items()
            if name not in LEFT_OUT
            and name not in rocketmq._POWERFUL
            and (name == "TRIMQ_TTL_MS" or not name.startswith(rocketmq._POWERFUL_PREFIXES))
        }
        found = rocketmq.from_neutral(HOMES[home](rocketmq.sent_to_neutral(unit)))
        assert found == unit._replace(properties=expected)

    check()


@pytest.mark.parametrize("home", ["kafka", "rocketmq"])
def test_a_content_comes_back_without_the_user_that_nobody_checked(home: str) -> None:
    @given(contents())
    def check(content: Content) -> None:
        found = amqp.from_neutral(HOMES[home](amqp.to_neutral(content, QUEUE, is_stored=False)), QUEUE)
        expected = content._replace(header=amqp.without_private_headers(content.header))
        if "user_id" in read_properties(expected.header):
            expected = expected._replace(header=replace(expected.header, user_id=None))
        assert found._replace(published_ms=0) == expected._replace(published_ms=0)

    check()


@given(records)
def test_a_stored_record_is_its_own_neutral_message(record: Record) -> None:
    assert kafka.from_neutral(kafka.to_neutral(record, is_stored=False)) == record


@given(records)
def test_no_header_of_a_record_becomes_a_property_with_a_meaning(record: Record) -> None:
    found = rocketmq.from_neutral(kafka.to_neutral(record, is_stored=False))
    given_names = {"TAGS", "KEYS", "UNIQ_KEY", "TRIMQ_FROM", "TRIMQ_KEPT"}
    assert {name for name in found.properties if is_own(name)} <= given_names
    assert found.properties["TRIMQ_FROM"] == "kafka"


@given(records)
def test_no_header_of_a_record_acts_on_an_amqp_broker(record: Record) -> None:
    header = amqp.from_neutral(kafka.to_neutral(record, is_stored=False), QUEUE).header
    properties = read_properties(header)
    assert "user_id" not in properties
    table: Any = properties["headers"]
    assert not any(name in ("CC", "BCC") or name.startswith("x-") for name in table)


@given(units)
def test_no_property_of_a_unit_acts_on_an_amqp_broker(unit: UnitFields) -> None:
    properties = read_properties(amqp.from_neutral(rocketmq.sent_to_neutral(unit), QUEUE).header)
    assert "user_id" not in properties
    table: Any = properties["headers"]
    assert not any(name in ("CC", "BCC") or name.startswith("x-") for name in table)


@given(contents())
def test_no_header_of_a_content_becomes_a_property_with_a_meaning(content: Content) -> None:
    found = rocketmq.from_neutral(amqp.to_neutral(content, QUEUE, is_stored=False))
    given_names = {"TAGS", "KEYS", "UNIQ_KEY", "CORRELATION_ID", "_SYS_MSG_PRIORITY_", "TRIMQ_TTL_MS"}
    assert {name for name in found.properties if is_own(name)} <= given_names | {
        "TRIMQ_FROM",
        "TRIMQ_KEPT",
        "TRIMQ_CUT",
    }


@given(records)
def test_the_views_of_any_stored_record_can_be_made(record: Record) -> None:
    message = kafka.to_neutral(record)
    write_properties(rocketmq.from_neutral(message).properties)
    amqp.from_neutral(message, QUEUE)


@given(contents())
def test_the_views_of_any_stored_content_can_be_made(content: Content) -> None:
    message = amqp.to_neutral(content, QUEUE)
    write_properties(rocketmq.from_neutral(message).properties)
    kafka.from_neutral(message)


@given(units)
def test_the_views_of_any_stored_unit_can_be_made(unit: UnitFields) -> None:
    draft = UnitDraft(
        b"t", 0, unit.body, write_properties(unit.properties), unit.flag, 0, unit.born_ms, unit.born_host, 0
    )  # fmt: skip
    stored = read_unit(encode_unit(draft, 0, 0, 0, HOST))
    assert read_unit_properties(stored.properties) == unit.properties
    message = rocketmq.to_neutral(stored)
    kafka.from_neutral(message)
    amqp.from_neutral(message, QUEUE)
