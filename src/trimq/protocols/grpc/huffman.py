"""Huffman code of HPACK strings (RFC 7541, appendix B). Knows bytes, no headers."""

from __future__ import annotations

from functools import lru_cache

# Code length in bits of each byte, then of EOS. The code is canonical, so the lengths define it.
_LENGTHS = (
    *(13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28),
    *(28, 28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15),
    *(6, 12, 10, 13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6),
    *(15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, 6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28, 20, 22),
    *(20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23),
    *(23, 24, 22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20, 22),
    *(22, 22, 23, 22, 22, 23, 26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26),
    *(27, 24, 21, 21, 26, 26, 28, 27, 27, 27, 20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23, 26, 27),
    *(26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26, 30),
)
_END = 256
_LONGEST_PADDING = 7


class BadHuffman(ValueError):
    """The bits are not valid Huffman code."""


def _grow() -> list[list[int]]:
    """Builds the code tree: each node has two branches, to another node or, below 0, to a symbol."""
    forks = [[0, 0]]
    code = 0
    for length in range(1, max(_LENGTHS) + 1):
        code <<= 1
        for symbol in (symbol for symbol, own in enumerate(_LENGTHS) if own == length):
            _plant(forks, code, length, symbol)
            code += 1
    return forks


def _plant(forks: list[list[int]], code: int, length: int, symbol: int) -> None:
    at = 0
    for bit in range(length - 1, 0, -1):
        side = code >> bit & 1
        if not forks[at][side]:
            forks.append([0, 0])
            forks[at][side] = len(forks) - 1
        at = forks[at][side]
    forks[at][code & 1] = ~symbol


_FORKS = _grow()


def _padded() -> frozenset[int]:
    """Returns the states in which a string may end: after a symbol, or in padding (all ones, too short for a
    symbol)."""
    at, found = 0, [0]
    for _ in range(_LONGEST_PADDING):
        at = _FORKS[at][1]
        found.append(at)
    return frozenset(found)


_MAY_END = _padded()


@lru_cache(maxsize=16_384)
def _step(state: int, byte: int) -> tuple[bytes, int]:
    """Decodes eight bits from a node on. Returns the complete symbols and the next node."""
    symbols = bytearray()
    for bit in range(7, -1, -1):
        state = _FORKS[state][byte >> bit & 1]
        if state < 0:
            if ~state == _END:
                raise BadHuffman("EOS inside a Huffman-coded string")
            symbols.append(~state)
            state = 0
    return bytes(symbols), state


def decode(data: bytes) -> bytes:
    state = 0
    found = []
    for byte in data:
        symbols, state = _step(state, byte)
        found.append(symbols)
    if state not in _MAY_END:
        raise BadHuffman("Huffman-coded string ends inside a symbol")
    return b"".join(found)
