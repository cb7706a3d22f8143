"""Adopts a store folder written by Apache RocketMQ, or by this broker before its first checkpoint: removes the files
derived from the commit log, since recovery rebuilds them."""

from __future__ import annotations

from contextlib import suppress

from trimq.errors import StartupError
from trimq.storage.io.files import Files

# Pending timers are in the log. The two timer files hold positions in it, which would mislead Apache RocketMQ after
# this broker has appended.
_DERIVED = ("consumequeue", "consumequeue_ext", "timerlog", "timerwheel")
_BATCH_QUEUES = "batchconsumequeue"


def remove_derived_files(files: Files, root: str) -> None:
    """Raises StartupError if the folder holds data that this broker cannot serve."""
    if files.names(f"{root}/{_BATCH_QUEUES}"):
        raise StartupError(f"{root}/{_BATCH_QUEUES} is not empty: batch consume queues are not supported")
    for name in _DERIVED:
        if name in files.names(root):
            _empty(files, f"{root}/{name}")
    files.make_folder(f"{root}/consumequeue")


def _empty(files: Files, name: str) -> None:
    for inner in files.names(name):
        _empty(files, f"{name}/{inner}")
    with suppress(FileNotFoundError):
        files.remove(name)
