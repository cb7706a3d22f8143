"""A secret key in a file of the data folder that only the broker's own user may read. Knows nothing of its use."""

from __future__ import annotations

from collections.abc import Callable

from trimq.storage.io.files import Files


def read_key(files: Files, name: str, length: int) -> bytes | None:
    """Returns the key. None if there is no such file, or if a crash cut off its creation."""
    if name not in files.names(""):
        return None
    file = files.open(name)
    try:
        key = file.read(0, length + 1)
    finally:
        file.close()
    return key if len(key) == length and any(key) else None


def begin_make_key(files: Files, name: str, key: bytes) -> Callable[[], None]:
    """Writes the key. Returns a callable to be called once, off the event loop: it returns when the key survives a
    power cut."""
    file = files.open(name, create=True)
    files.restrict(name)  # before it holds anything
    file.resize(0)
    file.write(0, [key])
    sync = file.begin_sync()

    def finish() -> None:
        sync()
        files.sync_folder("")

    return finish
