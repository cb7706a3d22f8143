"""Huffman encoder of RFC 7541, as some peers use it."""

from __future__ import annotations

from trimq.protocols.grpc.huffman import _FORKS


def _codes() -> dict[int, str]:
    found: dict[int, str] = {}
    open_ends = [(0, "")]
    while open_ends:
        fork, bits = open_ends.pop()
        for bit, following in enumerate(_FORKS[fork]):
            if following < 0:
                found[~following] = f"{bits}{bit}"
            else:
                open_ends.append((following, f"{bits}{bit}"))
    return found


CODES = _codes()


def encoded(text: bytes) -> bytes:
    bits = "".join(CODES[byte] for byte in text)
    bits += "1" * (-len(bits) % 8)
    return bytes(int(bits[at : at + 8], 2) for at in range(0, len(bits), 8))
