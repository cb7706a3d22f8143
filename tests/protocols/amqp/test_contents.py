"""Contents on their way out: what a client's own decoder makes of them."""

from __future__ import annotations

import pytest

from trimq.formats.property_list import write_properties
from trimq.protocols.amqp import methods
from trimq.protocols.amqp.contents import DeliveryPrefix, write_command, write_content, write_get_ok
from trimq.protocols.amqp.frames import OVERHEAD, unpack_prefix
from trimq.protocols.amqp.method_codec import read_method

HEADER = write_properties(content_type="a/b", headers={"k": "v"})


def frames_of(raw: bytes) -> list[tuple[int, int, bytes]]:
    found = []
    while raw:
        kind, channel, length = unpack_prefix(raw)
        assert raw[7 + length] == 0xCE
        found.append((kind, channel, raw[7 : 7 + length]))
        raw = raw[8 + length :]
    return found


@pytest.mark.parametrize("is_redelivered", [False, True])
def test_a_delivery_says_its_tag_and_names(is_redelivered: bool) -> None:
    prefix = DeliveryPrefix(3, "tag", b"exchange", "schlüssel".encode())
    ((kind, channel, payload),) = frames_of(prefix.write(2**40, is_redelivered))
    expected = methods.BasicDeliver("tag", 2**40, is_redelivered, "exchange", "schlüssel")
    assert (kind, channel, read_method(payload)) == (1, 3, expected)


def test_a_got_message_says_how_many_are_left() -> None:
    ((_, channel, payload),) = frames_of(write_get_ok(5, 7, True, b"e", b"k", 42))
    assert (channel, read_method(payload)) == (5, methods.BasicGetOk(7, True, "e", "k", 42))


@pytest.mark.parametrize("size", [0, 1, 4088, 4089, 10_000])
def test_a_body_is_cut_to_the_frames_that_were_agreed_upon(size: int) -> None:
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
