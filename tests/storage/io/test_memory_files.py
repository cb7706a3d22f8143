"""Files in memory: the same behaviour as files on disk, and their state after a crash."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimq.storage.io.files import DiskFiles, Files
from trimq.storage.io.memory_files import MemoryFiles, MemoryNode, NameChange


class KeepAll:
    def names(self, folder: str, changes: Sequence[NameChange]) -> Iterable[NameChange]:
        return changes

    def contents(self, name: str, versions: Sequence[bytes]) -> bytes:
        return versions[-1]


@pytest.fixture(params=["memory", "disk"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> Iterable[Files]:
    made = MemoryFiles() if request.param == "memory" else DiskFiles(str(tmp_path))
    yield made
    made.close()


def contents(files: Files, name: str) -> bytes:
    file = files.open(name)
    return file.read(0, file.size())


def put(files: Files, name: str, data: bytes, synced: bool = False) -> None:
    file = files.open(name, create=True)
    file.write(0, [data])
    if synced:
        file.begin_sync()()
        files.sync_folder(name.rpartition("/")[0])


# -- same behaviour as files on disk


def test_parts_are_written_consecutively(files: Files) -> None:
    file = files.open("a", create=True)
    file.write(0, [b"ab", b"", b"cd"])
    file.write(6, [b"gh"])
    assert contents(files, "a") == b"abcd\0\0gh"


def test_a_file_that_is_cut_and_grown_again_shows_zeros(files: Files) -> None:
    put(files, "a", b"abcdef")
    file = files.open("a")
    file.resize(2)
    file.resize(4)
    assert contents(files, "a") == b"ab\0\0"


def test_reading_stops_at_the_end(files: Files) -> None:
    put(files, "a", b"abc")
    assert files.open("a").read(1, 100) == b"bc"
    assert files.open("a").read(100, 1) == b""


def test_a_view_stays_valid_after_growth_and_removal(files: Files) -> None:
    put(files, "a", b"abc")
    file = files.open("a")
    view = file.view(0, 3)
    file.write(3, [b"x" * 100_000])
    files.remove("a")
    assert bytes(view) == b"abc"
    view.release()


def test_a_view_cannot_be_written_through(files: Files) -> None:
    put(files, "a", b"abc")
    view = files.open("a").view(0, 3)
    assert view.readonly
    view.release()


def test_names_are_sorted_and_only_those_of_the_folder(files: Files) -> None:
    files.make_folder("f/g")
    for name in ("f/b", "f/a", "top"):
        put(files, name, b"")
    assert files.names("f") == ["a", "b", "g"]
    assert files.names("") == ["f", "top"]
    assert files.names("nowhere") == []
    assert files.names("top") == []


def test_a_rename_replaces(files: Files) -> None:
    put(files, "old", b"1")
    put(files, "new", b"2")
    files.rename("old", "new")
    assert files.names("") == ["new"]
    assert contents(files, "new") == b"1"


def test_a_folder_is_renamed_with_its_contents(files: Files) -> None:
    files.make_folder("f")
    put(files, "f/a", b"1")
    files.rename("f", "g")
    assert files.names("f") == []
    assert contents(files, "g/a") == b"1"


def test_a_file_moves_between_folders(files: Files) -> None:
    files.make_folder("f")
    put(files, "a", b"1")
    files.rename("a", "f/a")
    assert files.names("") == ["f"]
    assert contents(files, "f/a") == b"1"


REFUSED: list[tuple[Callable[[Files], object], int]] = [
    (lambda files: files.open("none").size(), errno.ENOENT),
    (lambda files: files.open("none/a", create=True), errno.ENOENT),
    (lambda files: files.open("full", create=True), errno.EISDIR),
    (lambda files: files.remove("none"), errno.ENOENT),
    (lambda files: files.remove("full"), errno.ENOTEMPTY),
    (lambda files: files.rename("none", "other"), errno.ENOENT),
    (lambda files: files.rename("empty", "full"), errno.ENOTEMPTY),
    (lambda files: files.sync_folder("none"), errno.ENOENT),
    (lambda files: files.make_folder("full/a/b"), errno.ENOTDIR),
]


@pytest.mark.parametrize(("ask", "number"), REFUSED)
def test_invalid_operations_raise_the_error_of_a_disk(
    files: Files, ask: Callable[[Files], object], number: int
) -> None:
    files.make_folder("full")
    files.make_folder("empty")
    put(files, "full/a", b"")
    with pytest.raises(OSError) as caught:  # noqa: PT011 the error number matters, not the message
        ask(files)
    assert caught.value.errno == number


def test_an_empty_folder_is_removed(files: Files) -> None:
    files.make_folder("f")
    files.remove("f")
    assert files.names("") == []


def test_space_counts_written_bytes() -> None:
    files = MemoryFiles(total_bytes=10)
    put(files, "a", b"abc")
    assert files.space() == (7, 10)
    put(files, "b", b"x" * 20)
    assert files.space() == (0, 10)


# -- state after a crash


def test_bytes_survive_once_their_file_is_synced() -> None:
    files = MemoryFiles()
    put(files, "a", b"abc", synced=True)
    files.open("a").write(3, [b"def"])
    files.crash()
    assert contents(files, "a") == b"abc"


def test_a_sync_covers_only_bytes_written_before_it_began() -> None:
    files = MemoryFiles()
    put(files, "a", b"abc", synced=True)
    file = files.open("a")
    file.write(3, [b"def"])
    sync = file.begin_sync()
    file.write(6, [b"ghi"])
    sync()
    files.crash()
    assert contents(files, "a") == b"abcdef"


def test_an_unsynced_overwrite_and_truncation_are_lost() -> None:
    files = MemoryFiles()
    put(files, "a", b"abcdef", synced=True)
    file = files.open("a")
    file.write(1, [b"XY"])
    file.resize(2)
    file.write(2, [b"longer than before"])
    files.crash()
    assert contents(files, "a") == b"abcdef"


def test_a_name_survives_once_its_folder_is_synced() -> None:
    files = MemoryFiles()
    file = files.open("a", create=True)
    file.write(0, [b"abc"])
    file.begin_sync()()
    files.crash()
    assert files.names("") == []


def test_a_folder_whose_parent_was_not_synced_is_lost_with_its_contents() -> None:
    files = MemoryFiles()
    files.make_folder("f")
    put(files, "f/a", b"abc", synced=True)
    files.crash()
    assert files.names("") == []


def test_an_unsynced_removal_and_rename_are_lost() -> None:
    files = MemoryFiles()
    put(files, "a", b"1", synced=True)
    put(files, "b", b"2", synced=True)
    files.remove("a")
    files.rename("b", "c")
    files.crash()
    assert files.names("") == ["a", "b"]


def test_sync_all_makes_everything_durable() -> None:
    files = MemoryFiles()
    files.make_folder("f/g")
    put(files, "f/g/a", b"abc")
    files.sync_all()
    files.crash()
    assert contents(files, "f/g/a") == b"abc"


def test_survivors_may_keep_everything() -> None:
    files = MemoryFiles()
    files.make_folder("f")
    put(files, "f/a", b"abc")
    files.rename("f/a", "f/b")
    files.crash(KeepAll())
    assert files.names("f") == ["b"]
    assert contents(files, "f/b") == b"abc"


def test_surviving_contents_are_durable() -> None:
    files = MemoryFiles()
    put(files, "a", b"abc")
    files.crash(KeepAll())
    files.crash()
    assert contents(files, "a") == b"abc"


def test_writes_to_a_file_that_was_open_before_the_crash_are_lost() -> None:
    files = MemoryFiles()
    put(files, "a", b"abc", synced=True)
    stale = files.open("a")
    files.crash()
    stale.write(0, [b"XYZ"])
    assert contents(files, "a") == b"abc"


def test_unsynced_appends_use_no_extra_memory() -> None:
    node = MemoryNode()
    for position in range(1000):
        node.write(position, b"x")
    assert node.versions() == [b"", b"x" * 1000]


WRITES = st.tuples(st.just("write"), st.integers(0, 30), st.binary(max_size=20))
RESIZES = st.tuples(st.just("resize"), st.integers(0, 40), st.just(b""))
SYNCS = st.tuples(st.sampled_from(["begin", "sync"]), st.just(0), st.just(b""))


@given(st.lists(WRITES | RESIZES | SYNCS, max_size=30))
def test_the_first_version_is_always_the_synced_one(steps: list[tuple[str, int, bytes]]) -> None:
    node, now, begun, synced = MemoryNode(), b"", (0, b""), b""
    for step, number, data in steps:
        if step == "write":
            node.write(number, data)
            now = now.ljust(number, b"\0") if data or number <= len(now) else now
            now = now[:number] + data + now[number + len(data) :]
        elif step == "resize":
            node.resize(number)
            now = now[:number].ljust(number, b"\0")
        elif step == "begin":
            begun = node.mark(), now
        else:
            node.sync(begun[0])
            synced = begun[1]
        assert node.versions()[0] == synced
        assert node.versions()[-1] == now == bytes(node.read(0, 1000))
