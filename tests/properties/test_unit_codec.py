"""Message units, batch bodies and property strings: round trips, and garbage that is refused or read in bounds."""

from __future__ import annotations

import contextlib

from hypothesis import given
from hypothesis import strategies as st

from trimq.formats.rocketmq_unit.batch_body import BatchEntry, read_batch, write_batch
from trimq.formats.rocketmq_unit.hosts import BadMessageId, offset_message_id, pack_host, read_message_id, unpack_host
from trimq.formats.rocketmq_unit.properties import (
    find_property,
    is_plain,
    java_hash,
    key_hash,
    read_properties,
    write_properties,
)
from trimq.formats.rocketmq_unit.records import from_record, to_record
from trimq.formats.rocketmq_unit.unit import (
    BadUnit,
    UnitDraft,
    check_unit,
    draft_size,
    encode_unit,
    iterate_units,
    read_unit,
)

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
ADDRESSES = st.ip_addresses(v=4).map(str) | st.ip_addresses(v=6).map(str)
HOSTS = st.builds(pack_host, ADDRESSES, st.integers(0, 65_535))
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00\x01\x02"), min_size=1, max_size=20)
PROPERTIES = st.dictionaries(TEXT, TEXT, max_size=5)
DRAFTS = st.builds(
    UnitDraft,
    topic=st.binary(max_size=300),
    queue_id=INT32,
    body=st.binary(max_size=300),
    properties=PROPERTIES.map(write_properties),
    flag=INT32,
    sys_flag=INT32,
    born_ms=INT64,
    born_host=HOSTS,
    reconsume_times=INT32,
    prepared_position=INT64,
)


@given(DRAFTS, INT64, INT64, INT64, HOSTS)
def test_a_unit_is_decoded_as_it_was_encoded(
    draft: UnitDraft, queue_offset: int, position: int, store_ms: int, store_host: bytes
) -> None:
    data = encode_unit(draft, queue_offset, position, store_ms, store_host)
    assert len(data) == draft_size(draft, store_host)
    unit = check_unit(data, position=position)
    assert (unit.queue_offset, unit.store_ms, unit.store_host) == (queue_offset, store_ms, store_host)
    assert unit.sys_flag & ~48 == draft.sys_flag & ~48
    for name in UnitDraft._fields:
        if name != "sys_flag":
            assert getattr(unit, name) == getattr(draft, name)
    back = from_record(to_record(unit), draft.topic, draft.queue_id, store_host)
    assert read_properties(back.properties) == read_properties(draft.properties)
    assert (back.body, back.flag, back.born_ms, back.born_host) == (unit.body, unit.flag, unit.born_ms, unit.born_host)


@given(DRAFTS, st.data())
def test_a_truncated_unit_is_never_accepted(draft: UnitDraft, data: st.DataObject) -> None:
    unit = encode_unit(draft, 0, 0, 0, pack_host("127.0.0.1", 1))
    cut = unit[: data.draw(st.integers(0, len(unit) - 1))]
    try:
        read_unit(cut)
    except BadUnit:
        return
    raise AssertionError("a part of a unit was read as one")


@given(DRAFTS, st.data())
def test_damage_is_refused_or_read_within_bounds(draft: UnitDraft, data: st.DataObject) -> None:
    unit = bytearray(encode_unit(draft, 0, 0, 0, pack_host("127.0.0.1", 1)))
    for _ in range(data.draw(st.integers(1, 4))):
        unit[data.draw(st.integers(0, len(unit) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(BadUnit):
        assert sum(found.size for found in iterate_units(unit)) == len(unit)


@given(st.binary(max_size=400))
def test_garbage_is_no_unit_and_no_batch(garbage: bytes) -> None:
    for read in (iterate_units, read_batch):
        with contextlib.suppress(BadUnit):
            list(read(garbage))


@given(st.lists(st.builds(BatchEntry, INT32, st.binary(max_size=50), st.binary(max_size=50)), max_size=5))
def test_a_batch_survives_encoding_and_decoding(messages: list[BatchEntry]) -> None:
    assert list(read_batch(write_batch(messages))) == messages


@given(PROPERTIES)
def test_properties_survive_encoding_and_decoding(properties: dict[str, str]) -> None:
    raw = write_properties(properties)
    assert read_properties(raw) == properties
    for name, value in properties.items():
        assert find_property(raw, name) == value


@given(st.text(st.sampled_from("\x00\x01\x02aé"), max_size=30))
def test_plain_properties_are_written_unchanged(text: str) -> None:
    properties = read_properties(text)
    if is_plain(text, properties):
        assert write_properties(properties) == text.removesuffix("\x02").encode() + b"\x02"


@given(PROPERTIES)
def test_properties_as_clients_write_them_are_plain(properties: dict[str, str]) -> None:
    text = write_properties(properties).decode()
    assert is_plain(text, properties) == bool(properties)
    assert is_plain(text.removesuffix("\x02"), properties) == bool(properties)


@given(st.integers(-(2**31), 2**31 - 1), st.text(min_size=32, max_size=32))
def test_keys_of_producers_are_hashed_like_all_others(topic_hash: int, key: str) -> None:
    hashed = abs(java_hash(key, topic_hash))
    assert key_hash(topic_hash, key) == (0 if hashed == 2**31 else hashed)


@given(st.binary(max_size=100))
def test_any_bytes_are_some_properties(raw: bytes) -> None:
    found = read_properties(raw)
    assert all(name and value for name, value in found.items())


@given(st.text(max_size=600))
def test_hashes_are_those_of_java(text: str) -> None:
    expected = 0
    encoded = text.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(encoded), 2):
        expected = (31 * expected + int.from_bytes(encoded[at : at + 2], "big")) & 0xFFFFFFFF
    assert java_hash(text) & 0xFFFFFFFF == expected


@given(HOSTS, st.integers(0, 2**63 - 1))
def test_ids_survive_encoding_and_decoding(host: bytes, position: int) -> None:
    assert read_message_id(offset_message_id(host, position)) == (*unpack_host(host), position)


@given(st.text(max_size=60))
def test_any_text_is_an_id_or_refused(text: str) -> None:
    with contextlib.suppress(BadMessageId):
        read_message_id(text)
