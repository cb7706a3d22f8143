"""The Huffman code: the examples of RFC 7541 and invalid input."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from protocols.grpc.huffman_encoder import encoded

from trimq.protocols.grpc.huffman import BadHuffman, decode

EXAMPLES = {
    "f1e3c2e5f23a6ba0ab90f4ff": "www.example.com",
    "a8eb10649cbf": "no-cache",
    "25a849e95ba97d7f": "custom-key",
    "25a849e95bb8e8b4bf": "custom-value",
    "6402": "302",
    "aec3771a4b": "private",
    "d07abe941054d444a8200595040b8166e082a62d1bff": "Mon, 21 Oct 2013 20:13:21 GMT",
    "9d29ad171863c78f0b97c8e9ae82ae43d3": "https://www.example.com",
    "94e7821dd7f2e6c7b335dfdfcd5b3960d5af27087f3672c1ab270fb5291f9587316065c003ed4ee5b1063d5007": (
        "foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1"
    ),
    "": "",
}


@pytest.mark.parametrize("packed", EXAMPLES)
def test_the_examples_of_the_rfc_are_decoded(packed: str) -> None:
    assert decode(bytes.fromhex(packed)).decode() == EXAMPLES[packed]


@given(st.binary(max_size=100))
def test_any_encoded_text_is_decoded(text: bytes) -> None:
    assert decode(encoded(text)) == text


@pytest.mark.parametrize(
    "packed",
    [
        "ff",  # eight bits of padding only
        "f1e3c2e5f23a6ba0ab90f4ffff",  # eight bits of padding after a text
        "fe",  # padding with a cleared bit
        "fffffffc",  # the end-of-string symbol, which must not be sent
        "ffffffffff",
    ],
)
def test_an_invalid_code_is_refused(packed: str) -> None:
    with pytest.raises(BadHuffman):
        decode(bytes.fromhex(packed))
