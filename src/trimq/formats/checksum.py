"""CRC-32C (Castagnoli) of any contiguous buffer. Knows no format."""

from __future__ import annotations

from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import Protocol

import google_crc32c

from trimq.model import Buffer


class Checksum(Protocol):
    def __call__(self, buffer: Buffer, value: int = 0, /) -> int:
        """Returns the CRC-32C of `buffer`, continued from `value`, the checksum of the bytes before it."""


def crc32c_of_copy(buffer: Buffer, value: int = 0, /) -> int:
    """Uses google_crc32c, which accepts only bytes: a view is copied."""
    return int(google_crc32c.extend(value, buffer if type(buffer) is bytes else bytes(buffer)))


def _load_in_place() -> Checksum | None:
    """Loads the extension of the package crc32c, which reads a view in place and so saves a copy of every batch. The
    package is optional because of its licence. Only the extension is loaded: the package's other imports take a sixth
    of the broker's start."""
    package = find_spec("crc32c")
    places = None if package is None else package.submodule_search_locations
    found = None if places is None else PathFinder.find_spec("crc32c._crc32c", places)
    if found is None or found.loader is None:
        return None
    extension = module_from_spec(found)
    found.loader.exec_module(extension)
    in_place: Checksum = extension.crc32c
    return in_place


crc32c: Checksum = _load_in_place() or crc32c_of_copy
