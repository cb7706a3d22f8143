"""Replaces a small file atomically: after a crash at any moment a reader finds the old contents or the new ones."""

from __future__ import annotations

import errno
import os
from contextlib import closing, suppress

from trimq.model import Buffer
from trimq.storage.io.files import DiskFiles, Files, is_folder, split_path

TEMPORARY = ".tmp"


def replace_external_file(path: str, data: Buffer) -> None:
    """Replaces a file outside the data folder, for example a file that another program waits for. Its folder must
    exist."""
    root, name = _split(path)
    files = DiskFiles(root)
    try:
        replace_file(files, name, data)
    finally:
        files.close()


def remove_external_file(path: str) -> None:
    """Removes a file outside the data folder, if it exists. Raises OSError if the path is a folder or cannot be
    removed."""
    if is_folder(path):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    root, name = _split(path)
    with closing(DiskFiles(root)) as files, suppress(FileNotFoundError):
        files.remove(name)


def _split(path: str) -> tuple[str, str]:
    """Returns folder and name. Raises FileNotFoundError if the folder does not exist (most likely a typing error)."""
    root, name = split_path(path)
    if not is_folder(root):
        raise FileNotFoundError(errno.ENOENT, "no such folder", root)
    return root, name


def replace_file(files: Files, name: str, data: Buffer) -> None:
    """Returns when the new contents survive a power cut. Waits for the disk twice, so call it rarely.

    Raises OSError if the old contents are still in place, or if only the last step failed, which makes the new name
    durable.
    """
    temporary = name + TEMPORARY
    file = files.open(temporary, create=True)
    try:
        file.resize(0)  # left over from a crash
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
