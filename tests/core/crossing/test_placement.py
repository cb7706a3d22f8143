"""Places of messages whose writer names no stream."""

from __future__ import annotations

import pytest

from trimq.core.crossing.placement import find_place, murmur2
from trimq.formats.crossing.neutral import AMQP, Neutral
from trimq.model import Headers


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_hashes_are_those_of_kafka_s_java_client(key: bytes, expected: int) -> None:
    assert murmur2(key) == expected % (1 << 32)


@pytest.mark.parametrize(
    ("key", "headers", "expected"),
    [
        (None, (), 2),
        (b"abc", (), 479470107 % 5),
        (b"abc", (("trimq.partition", b"4"),), 4),
        (b"abc", (("trimq.partition", b"77"),), 77),
        (None, (("trimq.partition", b"-1"),), 2),
        (None, (("trimq.partition", None),), 2),
    ],
)
def test_a_message_has_the_place_of_its_header_or_its_key_or_its_pass(
    key: bytes | None, headers: Headers, expected: int
) -> None:
    assert find_place(Neutral(b"", key, headers, -1, AMQP), 5, pass_number=7) == expected
