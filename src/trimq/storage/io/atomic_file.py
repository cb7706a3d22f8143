"""Replaces a small file as a whole: whatever happens meanwhile, a reader finds the old contents or the new ones."""

from __future__ import annotations

import errno
import os
from contextlib import closing, suppress

from trimq.model import Buffer
from trimq.storage.io.files import DiskFiles, Files, is_folder, split_path

TEMPORARY = ".tmp"


def replace_external_file(path: str, data: Buffer) -> None:
    """Replace a file that is not in the data folder: one that somebody else waits for. Its folder must be there."""
    root, name = _split(path)
    files = DiskFiles(root)
    try:
        replace_file(files, name, data)
    finally:
        files.close()


def remove_external_file(path: str) -> None:
    """Remove such a file, if it is there. OSError: it is something else, or cannot be removed."""
    if is_folder(path):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    root, name = _split(path)
    with closing(DiskFiles(root)) as files, suppress(FileNotFoundError):
        files.remove(name)


def _split(path: str) -> tuple[str, str]:
    """OSError: there is no such folder, which somebody has mistyped."""
    root, name = split_path(path)
    if not is_folder(root):
        raise FileNotFoundError(errno.ENOENT, "there is no such folder", root)
    return root, name


def replace_file(files: Files, name: str, data: Buffer) -> None:
    """Return when the new contents survive a power cut. Waits for the disk twice: for rare moments only.

    OSError: the old contents are still there, unless only the last step failed, which makes the new name durable.
    """
    temporary = name + TEMPORARY
    file = files.open(temporary, create=True)
    try:
        file.resize(0)  # a crash may have left one behind
        file.write(0, [data])
        file.begin_sync()()
        files.rename(temporary, name)
    except OSError:
        with suppress(OSError):
            files.remove(temporary)
        raise
    finally:
        file.close()
    files.sync_folder(name.rpartition("/")[0])
