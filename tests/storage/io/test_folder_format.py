"""The format of a data folder."""

from __future__ import annotations

import pytest

from trimq.errors import StartupError
from trimq.storage.io.folder_format import NAME, VERSION, check_format, require_format
from trimq.storage.io.memory_files import MemoryFiles


def written(text: bytes) -> MemoryFiles:
    files = MemoryFiles()
    files.open(NAME, create=True).write(0, [text])
    return files


def test_a_new_folder_gets_a_format_file() -> None:
    files = MemoryFiles()
    assert not check_format(files)
    require_format(files)
    files.crash()
    assert check_format(files)
    assert files.open(NAME).read(0, 100) == b'{"version":%d}\n' % VERSION
    require_format(files)
    assert files.names("") == [NAME]


def test_a_read_only_check_does_not_change_the_folder() -> None:
    files = MemoryFiles()
    check_format(files)
    assert files.names("") == []


def test_a_newer_format_is_refused_with_a_clear_message() -> None:
    files = written(b'{"version":%d,"more":[]}' % (VERSION + 1))
    for look in (check_format, require_format):
        with pytest.raises(StartupError, match=rf"has format {VERSION + 1}, but .* up to {VERSION}: use the version"):
            look(files)


@pytest.mark.parametrize("text", [b"", b"\0" * 12, b"1", b'{"version":0}', b'{"version":"one"}', b"{", b'"\xff"'])
def test_an_invalid_format_file_is_refused_with_a_clear_message(text: bytes) -> None:
    with pytest.raises(StartupError, match="is not a valid format file"):
        check_format(written(text))
