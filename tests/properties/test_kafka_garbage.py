"""Damaged messages of every API and version: read or refused, never another exception, never much memory."""

from __future__ import annotations

import contextlib
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st
from protocols.kafka.strategies import examples, full, versions_of

from trimq.errors import ProtocolError
from trimq.protocols.kafka.messages.schema import Message
from trimq.protocols.kafka.wire.apis import APIS, request_class, response_class
from trimq.protocols.kafka.wire.codec import decode, encode

every_api = pytest.mark.parametrize("api_key", APIS, ids=lambda key: APIS[key].name)

EXTREMES = [
    bytes.fromhex(text)
    for text in ("7fffffff", "ffffffff", "fffffffe", "80000000", "10000000", "7fff", "8000", "ffffffff07", "ffffffff0f",
                 "feffffff0f", "8080808008", "808080808001", "00", "01", "7f", "ff", "")
]  # fmt: skip
# positions as fractions of the length, so that one damage fits every message
damages = st.tuples(st.floats(0, 1), st.sampled_from(EXTREMES) | st.binary(max_size=8), st.booleans())

SMALL_MULTIPLE = 64  # memory for one byte of input, in the worst case of a list of empty structs


def read(kind: type[Message], version: int, body: bytes) -> None:
    with contextlib.suppress(ProtocolError):
        decode(kind, version, body)


@every_api
@examples(10)
@given(st.lists(damages, min_size=3, max_size=6))
def test_a_damaged_message_is_read_or_refused(api_key: int, found: list[tuple[float, bytes, bool]]) -> None:
    for kind in (request_class(api_key), response_class(api_key)):
        for version in versions_of(kind):
            whole = encode(full(kind), version)
            for part, bytes_there, cut in found:
                at = int(part * len(whole))
                rest = b"" if cut else whole[at + len(bytes_there) :]
                read(kind, version, whole[:at] + bytes_there + rest)


@every_api
def test_a_message_cut_anywhere_is_refused(api_key: int) -> None:
    for kind in (request_class(api_key), response_class(api_key)):
        version = APIS[api_key].max_version
        whole = encode(full(kind), version)
        for end in range(len(whole)):
            with pytest.raises(ProtocolError):
                decode(kind, version, whole[:end])


@every_api
def test_no_claimed_length_takes_more_memory_than_a_small_multiple_of_the_input(api_key: int) -> None:
    for kind in (request_class(api_key), response_class(api_key)):
        version = APIS[api_key].max_version
        whole = encode(full(kind), version)
        read(kind, version, whole)
        positions = range(0, len(whole), max(1, len(whole) // 30))
        bodies = [whole[:at] + extreme + bytes(1000) for at in positions for extreme in EXTREMES]
        tracemalloc.start()
        try:
            for body in bodies:
                tracemalloc.reset_peak()
                before = tracemalloc.get_traced_memory()[0]
                read(kind, version, body)
                taken = tracemalloc.get_traced_memory()[1] - before
                assert taken < SMALL_MULTIPLE * len(body) + 100_000
        finally:
            tracemalloc.stop()
