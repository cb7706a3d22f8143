"""Prepares the folder of a store that another program wrote, or we before our first checkpoint: what was built from its
commit log goes, since it is built anew."""

from __future__ import annotations

from contextlib import suppress

from trimq.errors import StartupError
from trimq.storage.io.files import Files

# Timers wait in the log; these two say where, and would mislead a genuine broker after we have gone on.
_DERIVED = ("consumequeue", "consumequeue_ext", "timerlog", "timerwheel")
_BATCH_QUEUES = "batchconsumequeue"


def remove_derived_files(files: Files, root: str) -> None:
    """StartupError: the folder holds what we cannot serve."""
    if files.names(f"{root}/{_BATCH_QUEUES}"):
        raise StartupError(f"{root}/{_BATCH_QUEUES} is not empty: queues of batches are not served")
    for name in _DERIVED:
        if name in files.names(root):
            _empty(files, f"{root}/{name}")
    files.make_folder(f"{root}/consumequeue")


def _empty(files: Files, name: str) -> None:
    for inner in files.names(name):
        _empty(files, f"{name}/{inner}")
    with suppress(FileNotFoundError):
        files.remove(name)
