"""Configuration files beside the commit log: replaced as a whole, with a backup of the previous contents."""

from __future__ import annotations

import errno

import pytest
from doubles import FaultyFiles

from trimq.storage.commit_log.config_files import ConfigFiles
from trimq.storage.io.memory_files import MemoryFiles


def test_written_contents_are_read_newest_first() -> None:
    config = ConfigFiles(MemoryFiles(), "store")
    assert (config.names(), config.versions("a.json")) == ([], [])
    for text in (b"first, and longer", b"second", b"third"):
        config.write("a.json", text)
    assert config.versions("a.json") == [b"third", b"second"]
    assert config.names() == ["a.json", "a.json.bak"]


@pytest.mark.parametrize("operation", ["write", "rename"])
def test_a_failed_write_keeps_the_old_contents(operation: str) -> None:
    files = FaultyFiles(MemoryFiles())
    config = ConfigFiles(files, "store")
    config.write("a.json", b"first")

    def refuse(called: str, name: str) -> None:
        if called == operation:
            raise OSError(errno.ENOSPC, "full")

    kept, files.before = files.before, refuse
    with pytest.raises(OSError, match="full"):
        config.write("a.json", b"second")
    files.before = kept
    assert config.versions("a.json") == [b"first"]
    config.write("a.json", b"third")
    assert config.versions("a.json") == [b"third", b"first"]
