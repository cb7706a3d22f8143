"""Property strings and the hashes of their values."""

from __future__ import annotations

import pytest

from trimq.formats.rocketmq_unit.properties import (
    find_property,
    java_hash,
    key_hash,
    read_properties,
    split_keys,
    tags_code,
    write_properties,
)


@pytest.mark.parametrize(
    ("raw", "found"),
    [
        (b"", {}),
        (b"a\x01b\x02", {"a": "b"}),
        (b"a\x01b\x02c\x01d", {"a": "b", "c": "d"}),
        (b"\x01b\x02c\x01\x02d\x02e\x01f\x02", {"e": "f"}),
        (b"a\x01b\x02a\x01c\x02", {"a": "c"}),
        (b"a\x01b\x01c\x02", {"a": "b\x01c"}),
        ("ü\x01ß\x02".encode(), {"ü": "ß"}),
        (b"a\x01\xff\x02", {"a": "\ufffd"}),
    ],
)
def test_properties_are_read_as_by_apache_rocketmq(raw: bytes, found: dict[str, str]) -> None:
    assert read_properties(raw) == found
    for name, value in found.items():
        if "\x01" not in value:
            assert find_property(raw, name) == value


def test_a_property_is_not_found_inside_of_another() -> None:
    raw = b"MYTAGS\x01x\x02KEYS\x01TAGS\x02"
    assert find_property(raw, "TAGS") is None
    assert find_property(raw + b"TAGS\x01\x02", "TAGS") is None
    assert find_property(raw + b"TAGS\x01y", "TAGS") == "y"


def test_every_property_ends_with_its_separator() -> None:
    assert write_properties({"a": "b", "": "x", "y": "", "c": "d"}) == b"a\x01b\x02c\x01d\x02"


@pytest.mark.parametrize("bad", ["\x00", "\x01", "\x02"])
def test_a_separator_inside_of_a_property_is_refused(bad: str) -> None:
    with pytest.raises(ValueError, match="separator"):
        write_properties({"a": f"b{bad}"})
    with pytest.raises(ValueError, match="separator"):
        write_properties({f"a{bad}": "b"})


@pytest.mark.parametrize(
    ("text", "hashed"),
    [
        ("", 0),
        ("TagA", 2598919),
        ("hello world", 1794106052),
        ("polygenelubricants", -(2**31)),
        ("ü", 252),
        ("😀", 1772899),
    ],
)
def test_hashes_are_those_of_java(text: str, hashed: int) -> None:
    assert java_hash(text) == hashed
    assert java_hash(text[len(text) // 2 :], java_hash(text[: len(text) // 2])) == hashed


def test_the_hash_of_a_key_is_never_negative() -> None:
    assert key_hash(0, "polygenelubricants") == 0
    assert key_hash(java_hash("orders#"), "k1") == abs(java_hash("orders#k1"))


def test_tags_without_a_name_have_the_code_0() -> None:
    assert tags_code("") == 0
    assert tags_code("TagA") == 2598919


def test_keys_are_separated_by_blanks() -> None:
    assert split_keys(" a b  c ") == ["a", "b", "c"]
