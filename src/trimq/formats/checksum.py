"""CRC-32C (Castagnoli) of any contiguous buffer. Knows no format."""

from __future__ import annotations

from typing import Protocol

import google_crc32c

from trimq.model import Buffer


class Checksum(Protocol):
    def __call__(self, buffer: Buffer, value: int = 0, /) -> int:
        """The CRC-32C of `buffer`, continued from `value`: that of the bytes before it."""


def crc32c_of_copy(buffer: Buffer, value: int = 0, /) -> int:
    """By google_crc32c, which takes nothing but bytes: a view is copied."""
    return int(google_crc32c.extend(value, buffer if type(buffer) is bytes else bytes(buffer)))


crc32c: Checksum
try:
    # Reads a view in place, which saves a copy of every batch; not required, because of its licence.
    from crc32c import crc32c
except ImportError:
    crc32c = crc32c_of_copy
