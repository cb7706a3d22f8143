"""A file in memory without a name, for libraries that take secrets by path alone: nothing of it reaches the disk."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def memfd_path(data: bytes) -> Iterator[str]:
    """A path under which this process reads `data` until the block ends."""
    descriptor = os.memfd_create("trimq")
    try:
        os.write(descriptor, data)
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)
