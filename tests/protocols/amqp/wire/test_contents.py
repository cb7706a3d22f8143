"""Encoded contents, read by a client's own decoder."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from trimq.formats.amqp_content.property_list import write_properties
from trimq.protocols.amqp import methods
from trimq.protocols.amqp.wire.contents import DeliveryFrames, write_command, write_content, write_get_ok
from trimq.protocols.amqp.wire.frames import OVERHEAD, unpack_prefix
from trimq.protocols.amqp.wire.method_codec import read_method

HEADER = write_properties(content_type="a/b", headers={"k": "v"})


def frames_of(raw: bytes) -> list[tuple[int, int, bytes]]:
    found = []
    while raw:
        kind, channel, length = unpack_prefix(raw)
        assert raw[7 + length] == 0xCE
        found.append((kind, channel, raw[7 : 7 + length]))
        raw = raw[8 + length :]
    return found


class Delivery(NamedTuple):
    tag: int = 2**40
    is_redelivered: bool = False
    exchange: bytes = b"exchange"
    key: bytes = "schlüssel".encode()
    header: bytes = HEADER
    body: bytes = b"one"


def test_each_delivery_has_its_tag_its_names_and_its_own_content() -> None:
    frames = DeliveryFrames(3, "tag", 4096)
    others = [
        Delivery(1, body=b"two"),
        Delivery(is_redelivered=True),
        Delivery(exchange=b""),
        Delivery(key=b"x"),
        Delivery(header=b"\0\0"),
    ]
    lengths = [Delivery(body=b"x" * size) for size in (0, 4088, 4089, 10_000)]
    for delivery in [Delivery(), *others, *lengths, Delivery()]:
        (kind, channel, payload), *content = frames_of(b"".join(frames.write(*delivery)))
        names = delivery.exchange.decode(), delivery.key.decode()
        assert (kind, channel) == (1, 3)
        assert read_method(payload) == methods.BasicDeliver("tag", delivery.tag, delivery.is_redelivered, *names)
        assert content == frames_of(b"".join(write_content(3, delivery.header, delivery.body, 4096)))


def test_a_get_ok_has_the_number_of_messages_left() -> None:
    ((_, channel, payload),) = frames_of(write_get_ok(5, 7, True, b"e", b"k", 42))
    assert (channel, read_method(payload)) == (5, methods.BasicGetOk(7, True, "e", "k", 42))


@pytest.mark.parametrize("size", [0, 1, 4088, 4089, 10_000])
def test_a_body_is_split_into_frames_of_the_negotiated_size(size: int) -> None:
    body = bytes(range(256)) * 40
    raw = b"".join(write_content(2, HEADER, body[:size], 4096))
    (kind, channel, header), *bodies = frames_of(raw)
    assert (kind, channel) == (2, 2)
    assert header == b"\0\x3c\0\0" + size.to_bytes(8, "big") + HEADER
    assert b"".join(payload for _, _, payload in bodies) == body[:size]
    assert all(0 < len(payload) <= 4096 - OVERHEAD for _, _, payload in bodies)


def test_a_command_is_one_frame() -> None:
    ((_, channel, payload),) = frames_of(write_command(9, methods.QueueDeclareOk("q", 1, 2)))
    assert (channel, read_method(payload)) == (9, methods.QueueDeclareOk("q", 1, 2))
