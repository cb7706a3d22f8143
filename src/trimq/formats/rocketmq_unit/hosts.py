"""Addresses in message units, and message ids made of an address and a position. Knows no unit."""

from __future__ import annotations

import ipaddress
from functools import lru_cache
from struct import Struct
from typing import NamedTuple

_PORT = Struct(">i")
_POSITION = Struct(">q")
_SIZES = (8, 20)
_ID_LENGTHS = (32, 56)


class BadMessageId(ValueError):
    """The id does not consist of an address and a position."""


class OffsetMessageId(NamedTuple):
    """Decoded offset message id: address of the broker that stores the message, and its position in the commit log."""

    host: str
    port: int
    position: int


@lru_cache(maxsize=4096)
def pack_host(address: str, port: int) -> bytes:
    """Returns 8 bytes for an IPv4 address and its port, 20 for IPv6. Raises ValueError for anything else."""
    found = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is not None:
        found = found.ipv4_mapped
    return found.packed + _PORT.pack(port)


@lru_cache(maxsize=4096)
def unpack_host(packed: bytes) -> tuple[str, int]:
    if len(packed) not in _SIZES:
        raise ValueError(f"{len(packed)} bytes are not an address and port")
    return str(ipaddress.ip_address(packed[:-4])), _PORT.unpack_from(packed, len(packed) - 4)[0]


def offset_message_id(store_host: bytes, position: int) -> str:
    """Returns the id by which a client can query the message: 32 characters, 56 with an IPv6 address."""
    return f"{_upper_hex(store_host)}{position:016X}"


@lru_cache(maxsize=16)
def _upper_hex(host: bytes) -> str:
    return host.hex().upper()


def read_message_id(id: str) -> OffsetMessageId:
    if len(id) not in _ID_LENGTHS:
        raise BadMessageId(f"invalid message id of {len(id)} characters")
    try:
        packed = bytes.fromhex(id)
    except ValueError:
        raise BadMessageId("the message id is not hexadecimal") from None
    if len(packed) * 2 != len(id):
        raise BadMessageId("the message id contains blanks")
    host, port = unpack_host(packed[:-8])
    return OffsetMessageId(host, port, _POSITION.unpack_from(packed, len(packed) - 8)[0])


_UNIQUE = Struct(">hiih")


def unique_key(host: bytes, process: int, run: int, since_month_ms: int, count: int) -> str:
    """Builds an id as a producer does: of its address without the port, its process, and a counter. Each number is
    truncated to its field."""
    numbers = _UNIQUE.pack(_signed(process, 16), _signed(run, 32), _signed(since_month_ms, 32), _signed(count, 16))
    return (host[:-4] + numbers).hex().upper()


def _signed(number: int, bits: int) -> int:
    number &= (1 << bits) - 1
    return number - (1 << bits) if number >> (bits - 1) else number
