from __future__ import annotations

import errno
import gc
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from trimq.errors import StartupError
from trimq.model import Buffer
from trimq.storage.io.files import DiskFiles
from trimq.storage.io.folder_lock import FolderLock

LIMIT = 4
LARGE = 256 * 1024  # well above the size that is copied rather than mapped


@pytest.fixture
def files(tmp_path: Path) -> Iterator[DiskFiles]:
    opened = DiskFiles(str(tmp_path / "data"), open_files=LIMIT)
    yield opened
    opened.close()


def descriptors(files: DiskFiles) -> int:
    """Counts the descriptors of this process that refer to the folder."""
    count = 0
    for number in os.listdir("/proc/self/fd"):
        try:
            count += os.readlink(f"/proc/self/fd/{number}").startswith(files.root + "/")
        except FileNotFoundError:  # the descriptor of the listing itself
            continue
    return count


# -- reading and writing


def test_other_users_of_the_machine_see_neither_folders_nor_files(tmp_path: Path) -> None:
    FolderLock(str(tmp_path / "new")).release()
    opened = DiskFiles(str(tmp_path / "other"))
    opened.make_folder("partitions")
    opened.open("file", create=True)
    opened.close()
    for name in ("new", "other", "other/partitions", "other/file"):
        assert (tmp_path / name).stat().st_mode & 0o007 == 0


def test_parts_are_written_one_after_the_other(files: DiskFiles) -> None:
    file = files.open("one", create=True)
    file.write(0, [b"ab", bytearray(b"cd"), memoryview(b"ef"), b""])
    file.write(4, [b"EF", b"g"])
    assert (file.read(0, 100), file.size(), file.read(2, 3), file.read(7, 1)) == (b"abcdEFg", 7, b"cdE", b"")


def test_more_parts_than_the_kernel_accepts_in_one_call_are_written(files: DiskFiles) -> None:
    file = files.open("one", create=True)
    parts = [number.to_bytes(2, "big") for number in range(3000)]
    file.write(3, parts)
    assert file.read(0, 10_000) == b"\0\0\0" + b"".join(parts)


@pytest.mark.parametrize("step", [1, 3, 4, 7])
def test_a_short_write_is_continued(files: DiskFiles, step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    write, write_parts = os.pwrite, os.pwritev

    def short_parts(fd: int, parts: Sequence[Buffer], position: int) -> int:
        return write_parts(fd, [b"".join(parts)[:step]], position)

    monkeypatch.setattr(os, "pwritev", short_parts)
    monkeypatch.setattr(os, "pwrite", lambda fd, data, position: write(fd, data[:step], position))
    file = files.open("one", create=True)
    file.write(2, [b"abc", b"defg", b"h"])
    assert file.read(0, 100) == b"\0\0abcdefgh"


def test_a_write_that_the_disk_refuses_is_an_error(files: DiskFiles) -> None:
    file = files.open("one", create=True)
    file.write(0, [b"abc"])
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            file.write(3, [b"d" * 20])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert file.size() == 10
    file.resize(3)
    assert file.read(0, 100) == b"abc"


def test_a_file_must_exist_unless_it_is_created(files: DiskFiles) -> None:
    missing = files.open("missing")
    with pytest.raises(FileNotFoundError):
        missing.size()
    with pytest.raises(FileNotFoundError):
        missing.write(0, [b"a"])
    with pytest.raises(FileNotFoundError):
        missing.begin_sync()
    assert files.names("") == []


def test_creating_a_file_that_exists_keeps_its_contents(files: DiskFiles) -> None:
    files.open("one", create=True).write(0, [b"abc"])
    assert files.open("one", create=True).read(0, 100) == b"abc"


# -- the limit of open descriptors


def test_no_more_files_are_open_than_allowed(files: DiskFiles) -> None:
    opened = [files.open(str(number), create=True) for number in range(5 * LIMIT)]
    for _ in range(2):
        for number, file in enumerate(opened):
            file.write(file.size(), [b"%d;" % number])
            assert descriptors(files) <= LIMIT
    for number, file in enumerate(opened):
        assert file.read(0, 100) == b"%d;%d;" % (number, number)
        assert descriptors(files) <= LIMIT


def test_the_file_used_longest_ago_is_closed_first(files: DiskFiles) -> None:
    opened = [files.open(str(number), create=True) for number in range(LIMIT)]
    opened[0].read(0, 1)
    files.open("other", create=True)
    for file in opened:
        files.remove(file.name)
    with pytest.raises(FileNotFoundError):
        opened[1].read(0, 1)
    assert opened[0].read(0, 1) == b""


def test_a_mapping_uses_one_more_descriptor_and_is_closed_with_its_file(files: DiskFiles) -> None:
    for number in range(5 * LIMIT):
        file = files.open(str(number), create=True)
        file.write(0, [b"abc"])
        assert bytes(file.view(0, 3)) == b"abc"
        gc.collect()
        assert descriptors(files) <= 2 * LIMIT


def test_closing_releases_every_descriptor(files: DiskFiles) -> None:
    opened = [files.open(str(number), create=True) for number in range(3)]
    for file in opened:
        file.write(0, [b"abc"])
        file.view(0, 3).release()
    files.close()
    gc.collect()
    assert descriptors(files) == 0
    assert opened[0].read(0, 3) == b"abc", "a closed file must reopen when it is used"


# -- views


def test_a_view_stays_valid_whatever_happens_to_its_file(files: DiskFiles) -> None:
    file = files.open("one", create=True)
    file.write(0, [b"a" * LARGE])
    view = file.view(10, LARGE - 10)
    file.close()
    assert view[0] == ord("a")
    for number in range(2 * LIMIT):
        files.open(str(number), create=True)
    files.remove("one")
    assert bytes(view) == b"a" * (LARGE - 10)


def test_views_stay_valid_when_the_tail_is_cut_and_grows_again(files: DiskFiles) -> None:
    file = files.open("one", create=True)
    file.write(0, [b"a" * LARGE, b"b" * LARGE])
    kept = file.view(0, LARGE)
    file.view(LARGE, LARGE).release()
    file.resize(LARGE)
    assert bytes(kept) == b"a" * LARGE
    file.write(LARGE, [b"c" * (2 * LARGE)])
    assert bytes(kept) == b"a" * LARGE
    assert bytes(file.view(LARGE - 1, 2 * LARGE)) == b"a" + b"c" * (2 * LARGE - 1)


@pytest.mark.parametrize("more", [1, 1000, LARGE])
def test_a_view_may_reach_past_the_mapped_bytes(files: DiskFiles, more: int) -> None:
    file = files.open("one", create=True)
    file.write(0, [b"abc"])
    first = file.view(0, 3)
    file.write(3, [b"d" * more])
    assert bytes(file.view(3, more)) == b"d" * more
    assert bytes(file.view(1, 2 + more)) == b"bc" + b"d" * more
    assert bytes(first) == b"abc"


def test_a_view_shows_bytes_written_after_it_was_mapped(files: DiskFiles) -> None:
    file = files.open("one", create=True)
    file.resize(LARGE)
    view = file.view(0, LARGE)
    file.write(100, [b"abc"])
    assert bytes(view[100:103]) == b"abc"


def test_a_view_cannot_be_written_to(files: DiskFiles) -> None:
    file = files.open("one", create=True)
    file.write(0, [b"abc"])
    assert file.view(0, 3).readonly


def test_a_view_of_nothing_is_empty(files: DiskFiles) -> None:
    assert bytes(files.open("empty", create=True).view(0, 0)) == b""


# -- page cache


def test_freshly_written_bytes_are_cached(files: DiskFiles) -> None:
    file = files.open("one", create=True)
    file.write(0, [b"a" * LARGE])
    assert file.begin_warm(0, LARGE) is None
    assert file.begin_warm(0, 0) is None


@pytest.mark.parametrize("cold", [100, 109])
def test_bytes_that_the_kernel_would_wait_for_are_not_cached(
    files: DiskFiles, cold: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(fd: int, parts: Sequence[Buffer], position: int, flags: int) -> int:
        assert flags == os.RWF_NOWAIT
        if position == cold:
            raise BlockingIOError(errno.EAGAIN, "would block")
        return 1

    file = files.open("one", create=True)
    monkeypatch.setattr(os, "preadv", read)
    warm = file.begin_warm(100, 10)
    assert warm is not None
    warm()
    assert file.begin_warm(101, 8) is None


@pytest.mark.parametrize("number", [errno.EOPNOTSUPP, errno.EINVAL])
def test_a_file_system_without_cache_queries_counts_as_cached(
    files: DiskFiles, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    file = files.open("one", create=True)
    monkeypatch.setattr(os, "preadv", read)
    assert file.begin_warm(0, 10) is None


def test_a_broken_disk_is_not_a_cold_one(files: DiskFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    def read(*_: object) -> int:
        raise OSError(errno.EIO, "input/output error")

    file = files.open("one", create=True)
    monkeypatch.setattr(os, "preadv", read)
    with pytest.raises(OSError, match="input/output error"):
        file.begin_warm(0, 10)


def test_warming_reads_every_byte_and_releases_its_descriptor(
    files: DiskFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[int, int]] = []
    pread = os.pread

    def read(fd: int, length: int, position: int) -> bytes:
        asked.append((position, length))
        return pread(fd, length, position)

    def would_wait(*_: object) -> int:
        raise BlockingIOError(errno.EAGAIN, "would block")

    file = files.open("one", create=True)
    file.write(0, [b"a" * 3_000_000])
    monkeypatch.setattr(os, "preadv", would_wait)
    monkeypatch.setattr(os, "pread", read)
    warm = file.begin_warm(10, 2_500_000)
    file.close()
    assert warm is not None
    warm()
    assert asked[0][0] == 10
    assert sum(length for _, length in asked) == 2_500_000


# -- syncs


def test_a_sync_uses_its_own_descriptor(files: DiskFiles) -> None:
    file = files.open("one", create=True)
    file.write(0, [b"abc"])
    sync = file.begin_sync()
    file.close()
    files.remove("one")
    assert descriptors(files) == 1
    sync()
    assert descriptors(files) == 0


def test_a_failed_sync_raises_and_keeps_no_descriptor(files: DiskFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(fd: int) -> None:
        raise OSError(errno.EIO, "input/output error")

    file = files.open("one", create=True)
    sync = file.begin_sync()
    file.close()
    monkeypatch.setattr(os, "fdatasync", fail)
    with pytest.raises(OSError, match="input/output error"):
        sync()
    assert descriptors(files) == 0


def test_folders_and_the_whole_file_system_can_be_synced(files: DiskFiles) -> None:
    files.make_folder("a/b")
    files.open("a/b/one", create=True).write(0, [b"abc"])
    files.sync_folder("a/b")
    files.sync_folder("")
    before = len(os.listdir("/proc/self/fd"))
    files.sync_all()
    assert len(os.listdir("/proc/self/fd")) == before
    with pytest.raises(FileNotFoundError):
        files.sync_folder("nowhere")


def test_a_file_system_that_cannot_be_synced_is_an_error(tmp_path: Path) -> None:
    files = DiskFiles(str(tmp_path / "data"))
    files.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        files.sync_all()


# -- names


def test_names_are_sorted_and_none_where_there_is_no_folder(files: DiskFiles) -> None:
    files.make_folder("folder/inside")
    files.make_folder("folder/inside")
    for name in ("b", "a", "c"):
        files.open(f"folder/{name}", create=True)
    assert files.names("folder") == ["a", "b", "c", "inside"]
    assert files.names("folder/a") == []
    assert files.names("nowhere") == []


def test_files_and_empty_folders_can_be_removed(files: DiskFiles) -> None:
    files.make_folder("folder")
    files.open("folder/one", create=True)
    with pytest.raises(OSError, match="not empty"):
        files.remove("folder")
    files.remove("folder/one")
    files.remove("folder")
    assert files.names("") == []
    with pytest.raises(FileNotFoundError):
        files.remove("folder")


def test_a_rename_replaces(files: DiskFiles) -> None:
    files.open("old", create=True).write(0, [b"old"])
    files.open("new", create=True).write(0, [b"new"])
    files.rename("new", "old")
    assert files.names("") == ["old"]
    assert files.open("old").read(0, 10) == b"new"


def test_the_space_of_the_disk_is_reported(files: DiskFiles) -> None:
    space = files.space()
    assert 0 < space.free_bytes <= space.total_bytes


# -- the lock


def test_a_folder_has_one_owner_and_the_error_names_its_pid(tmp_path: Path) -> None:
    root = str(tmp_path / "data")
    lock = FolderLock(root)
    with pytest.raises(StartupError, match=rf"{root} is in use by the broker with pid {os.getpid()}$"):
        FolderLock(root)
    lock.release()
    FolderLock(root).release()


OWNER = """
import sys
from trimq.storage.io.folder_lock import FolderLock
lock = FolderLock(sys.argv[1])
print("locked", flush=True)
sys.stdin.read()
"""


def test_the_lock_is_released_when_its_owner_is_killed(tmp_path: Path) -> None:
    root = str(tmp_path / "data")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        [sys.executable, "-c", OWNER, root], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
    ) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == b"locked\n"
        with pytest.raises(StartupError, match=f"pid {owner.pid}$"):
            FolderLock(root)
        owner.send_signal(signal.SIGKILL)
        owner.wait()
        lock = FolderLock(root)
        assert (Path(root) / FolderLock.NAME).read_text() == f"{os.getpid()}\n"
        lock.release()


def test_reserved_space_is_allocated_and_filled_with_zeros(tmp_path: Path) -> None:
    files = DiskFiles(str(tmp_path))
    file = files.open("f", create=True)
    file.begin_reserve(1 << 20)()
    assert file.size() == 1 << 20
    assert (tmp_path / "f").stat().st_blocks * 512 >= 1 << 20
    file.begin_fill(4096, 8192)()
    assert file.read(0, 1 << 20) == bytes(1 << 20)
    files.close()


def test_locked_memory_is_counted_until_it_is_released(tmp_path: Path) -> None:
    def locked_kib() -> int:
        (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmLck")]
        return int(line.split()[1])

    files = DiskFiles(str(tmp_path))
    file = files.open("f", create=True)
    file.resize(8192)
    before = locked_kib()
    release = file.begin_lock(8192)()
    assert locked_kib() == before + 8
    release()
    assert locked_kib() == before
    with pytest.raises(OSError, match=r"RLIMIT_MEMLOCK is .*65536 bytes are needed"):
        file.begin_lock(65536)()  # more than the limit
    assert locked_kib() == before
    files.close()


# -- exhausted descriptors


@contextmanager
def no_more_descriptors() -> Iterator[None]:
    """Lets the process open no further descriptors."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(number) for number in os.listdir("/proc/self/fd"))
    fillers = []
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1, before[1]))
        with suppress(OSError):
            while True:
                fillers.append(os.open("/dev/null", os.O_RDONLY))
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
        for filler in fillers:
            os.close(filler)


def test_without_free_descriptors_files_close_each_other(files: DiskFiles) -> None:
    first, second, third = (files.open(name, create=True) for name in ("one", "two", "three"))
    third.close()
    with no_more_descriptors():
        third.write(0, [b"written"])  # closes one of the others
        sync = third.begin_sync()  # and the other
        sync()
        assert third.read(0, 7) == b"written"
    for file in (first, second):
        file.write(0, [b"x"])  # they reopen


def test_without_free_descriptors_the_only_file_cannot_be_opened(files: DiskFiles) -> None:
    only = files.open("one", create=True)
    only.close()
    with no_more_descriptors(), pytest.raises(OSError, match="Too many open files"):
        only.write(0, [b"x"])


def test_without_free_descriptors_files_and_folders_are_synced(files: DiskFiles) -> None:
    files.make_folder("folder")
    with no_more_descriptors():
        files.sync_all()
        files.sync_folder("folder")
