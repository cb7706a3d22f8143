"""Small files beside the commit log in which RocketMQ keeps its topics, groups and offsets. Ours are copies of our
tables, so that Apache RocketMQ can take over the folder. Knows names and bytes; the writer of a file knows its
meaning."""

from __future__ import annotations

from contextlib import suppress

from trimq.model import Buffer
from trimq.storage.io.atomic_file import TEMPORARY
from trimq.storage.io.files import Files

_FOLDER = "config"
_PREVIOUS = ".bak"


class ConfigFiles:
    def __init__(self, files: Files, root: str) -> None:
        self._files = files
        self._folder = f"{root}/{_FOLDER}"

    def names(self) -> list[str]:
        return self._files.names(self._folder)

    def versions(self, name: str) -> list[bytes]:
        """Returns the current and the previous contents of the file: a crash may have torn the current ones."""
        there = self.names()
        return [self._read(each) for each in (name, name + _PREVIOUS) if each in there]

    def _read(self, name: str) -> bytes:
        file = self._files.open(f"{self._folder}/{name}")
        try:
            return file.read(0, file.size())
        finally:
            file.close()

    def write(self, name: str, data: Buffer) -> None:
        """Replaces the file and keeps the previous contents, without waiting for the disk: a power cut may leave
        either, or neither. After an OSError the old file is still in place."""
        self._files.make_folder(self._folder)
        path = f"{self._folder}/{name}"
        file = self._files.open(path + TEMPORARY, create=True)
        try:
            file.resize(0)
            file.write(0, [data])
        finally:
            file.close()
        with suppress(FileNotFoundError):
            self._files.rename(path, path + _PREVIOUS)
        self._files.rename(path + TEMPORARY, path)
