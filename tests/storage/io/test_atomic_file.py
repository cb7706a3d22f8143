from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import count
from pathlib import Path

import pytest
from doubles import FaultyFiles, PowerCut

from trimq.storage.io.atomic_file import TEMPORARY, replace_file
from trimq.storage.io.files import DiskFiles, Files
from trimq.storage.io.memory_files import MemoryFiles, NameChange

NAME = "t-0/leader-epoch-checkpoint"
OLD = b"the old contents, which are longer"
STEPS = ["create", "resize", "write", "sync", "rename", "sync_folder"]


class Kept:
    """Survivors of a power cut: all unsynced names or none, and the newest, a torn or no version of the contents."""

    def __init__(self, names: bool, contents: float) -> None:
        self._names = names
        self._contents = contents

    def names(self, folder: str, changes: Sequence[NameChange]) -> Iterable[NameChange]:
        return changes if self._names else ()

    def contents(self, name: str, versions: Sequence[bytes]) -> bytes:
        if self._contents == 0:
            return versions[0]
        return versions[-1][: int(len(versions[-1]) * self._contents)]


def with_folder(old: bytes | None = None) -> MemoryFiles:
    files = MemoryFiles()
    files.make_folder("t-0")
    files.sync_all()
    if old is not None:
        replace_file(files, NAME, old)
    return files


def contents(files: Files) -> bytes | None:
    try:
        return files.open(NAME).read(0, 1 << 20)
    except FileNotFoundError:
        return None


def stopped_at(files: Files, step: int, error: BaseException) -> FaultyFiles:
    """Returns files that raise `error` before the change number `step`."""
    faulty = FaultyFiles(files)
    numbers = count()

    def fail(operation: str, name: str) -> None:
        if next(numbers) == step:
            assert operation == STEPS[step]
            raise error

    faulty.before = fail
    return faulty


@pytest.mark.parametrize(("kept_names", "kept_contents"), [(False, 0), (True, 0), (True, 0.5), (True, 1)])
@pytest.mark.parametrize("old", [None, OLD], ids=["new", "replaced"])
@pytest.mark.parametrize("step", range(len(STEPS)), ids=lambda step: STEPS[step])
def test_a_power_cut_at_any_moment_leaves_the_old_contents_or_the_new(
    step: int, old: bytes | None, kept_names: bool, kept_contents: float
) -> None:
    files = with_folder(old)
    with pytest.raises(PowerCut):
        replace_file(stopped_at(files, step, PowerCut()), NAME, b"new")
    files.crash(Kept(kept_names, kept_contents))
    assert contents(files) in (old, b"new")
    replace_file(files, NAME, b"newer")
    assert files.names("t-0") == ["leader-epoch-checkpoint"]
    assert contents(files) == b"newer"


@pytest.mark.parametrize(("kept_names", "kept_contents"), [(False, 0), (True, 0.5), (True, 1)])
def test_a_replacement_survives_a_power_cut(kept_names: bool, kept_contents: float) -> None:
    files = with_folder(OLD)
    replace_file(files, NAME, b"new")
    files.crash(Kept(kept_names, kept_contents))
    assert contents(files) == b"new"


@pytest.mark.parametrize("step", range(len(STEPS) - 1), ids=lambda step: STEPS[step])
def test_a_failure_leaves_the_old_contents_and_no_temporary_file(step: int) -> None:
    files = with_folder(OLD)
    with pytest.raises(OSError, match="broken"):
        replace_file(stopped_at(files, step, OSError("broken")), NAME, b"new")
    assert contents(files) == OLD
    assert files.names("t-0") == ["leader-epoch-checkpoint"]


def test_a_full_disk_leaves_the_old_contents() -> None:
    files = with_folder(OLD)
    full = FaultyFiles(files)
    full.room_bytes = 2
    with pytest.raises(OSError, match="No space left"):
        replace_file(full, NAME, b"new")
    assert contents(files) == OLD


def test_it_works_on_a_disk(tmp_path: Path) -> None:
    files = DiskFiles(str(tmp_path))
    files.make_folder("t-0")
    (tmp_path / (NAME + TEMPORARY)).write_bytes(b"left behind by a crash, and longer than what comes")
    replace_file(files, NAME, b"old")
    replace_file(files, NAME, b"new")
    assert (tmp_path / NAME).read_bytes() == b"new"
    assert files.names("t-0") == ["leader-epoch-checkpoint"]
    files.close()
