"""Codec of methods: each one survives a round trip, and invalid bytes are refused."""

from __future__ import annotations

import struct

import pytest

from trimq.protocols.amqp import methods
from trimq.protocols.amqp.wire.method_codec import (
    BadMethod,
    UnknownMethod,
    read_method,
    write_method,
    write_short_string,
)


def test_there_are_66_methods() -> None:
    assert len(methods.METHODS) == 66


@pytest.mark.parametrize("kind", methods.METHODS.values(), ids=lambda kind: kind.NAME)
def test_a_method_without_fields_survives_a_round_trip(kind: type[methods.Method]) -> None:
    assert read_method(write_method(kind())) == kind()


@pytest.mark.parametrize("kind", methods.METHODS.values(), ids=lambda kind: kind.NAME)
def test_a_method_that_is_cut_short_or_too_long_is_refused(kind: type[methods.Method]) -> None:
    payload = write_method(kind())
    for size in range(len(payload)):
        with pytest.raises(BadMethod):
            read_method(payload[:size])
    with pytest.raises(BadMethod, match="extra bytes"):
        read_method(payload + b"\0")


def test_neighbouring_bits_share_an_octet() -> None:
    declare = methods.QueueDeclare(queue="q", is_durable=True, no_wait=True)
    assert write_method(declare) == struct.pack(">HHHB", 50, 10, 0, 1) + b"q" + b"\x12" + bytes(4)
    assert read_method(write_method(declare)) == declare


@pytest.mark.parametrize("number", [0, 61 << 16 | 10, 60 << 16 | 200])
def test_an_unknown_method_number_is_refused(number: int) -> None:
    with pytest.raises(UnknownMethod):
        read_method(number.to_bytes(4, "big"))


def test_a_name_that_is_not_utf8_is_refused() -> None:
    payload = write_method(methods.BasicGet(queue="ab")).replace(b"ab", b"\xff\xfe")
    with pytest.raises(BadMethod, match=r"basic\.get"):
        read_method(payload)


@pytest.mark.parametrize("length", [2**31, 2**32 - 1, 5])
def test_a_length_beyond_the_bytes_is_refused(length: int) -> None:
    payload = struct.pack(">HHI", 10, 20, length) + b"abcd"
    with pytest.raises(BadMethod):
        read_method(payload)


def test_a_short_string_holds_255_bytes() -> None:
    assert len(write_short_string("é" * 127)) == 255
    with pytest.raises(BadMethod):
        write_short_string("é" * 128)
