"""Unnamed file in memory, for libraries that accept secrets only as a path. The secret never reaches the disk."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def memfd_path(data: bytes) -> Iterator[str]:
    """Yields a path under which this process can read `data` until the block ends."""
    descriptor = os.memfd_create("trimq")
    try:
        os.write(descriptor, data)
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)
