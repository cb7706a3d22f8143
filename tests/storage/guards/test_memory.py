from __future__ import annotations

import subprocess
import sys

import pytest

from trimq.clock import ManualTime
from trimq.errors import MemoryFull
from trimq.storage.guards.memory import REFRESH_MS, MemoryGuard
from trimq.storage.io.files import Memory
from trimq.storage.io.memory_files import MemoryFiles


def is_accepting(guard: MemoryGuard) -> bool:
    try:
        guard.check()
    except MemoryFull:
        return False
    return True


def test_writes_are_refused_above_the_limit_until_memory_is_well_below_it() -> None:
    files, time = MemoryFiles(), ManualTime(5)
    guard = MemoryGuard(files, time, 60, 80)
    seen = []
    for used in (600, 601, 600, 571, 570, 600, 601):
        files.taken = Memory(used, 1000)
        seen.append(is_accepting(guard))
        while time.step(time.now_ms() + REFRESH_MS):
            pass
    assert seen == [True, False, False, False, True, True, False]


def test_memory_is_queried_once_a_second_and_not_without_writes() -> None:
    files, time = MemoryFiles(), ManualTime(5)
    guard = MemoryGuard(files, time, 60, 80)
    assert is_accepting(guard)
    files.taken = Memory(999, 1000)
    assert is_accepting(guard)  # not queried again yet
    while time.step(time.now_ms() + REFRESH_MS):
        pass
    assert time.next_due_ms() is None
    with pytest.raises(MemoryFull, match="uses 999 bytes of memory; writes are accepted again at 570 or less"):
        guard.check()


def test_the_memory_of_a_process_is_counted_without_mapped_files(tmp_path) -> None:
    # In a subprocess: a process that has freed much memory uses no more when it fills it again.
    ended = subprocess.run([sys.executable, "-c", _TAKING, str(tmp_path)], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (0, "sound\n"), ended.stderr


_TAKING = """
import sys
from trimq.storage.io.files import DiskFiles
files = DiskFiles(sys.argv[1])
before = files.memory()
assert 0 < before.used_bytes < before.total_bytes
file = files.open("large", create=True)
file.resize(64 << 20)
view = file.view(0, 64 << 20)
assert sum(view[::4096]) == 0
assert files.memory().used_bytes < before.used_bytes + (32 << 20)
taken = bytearray(b"x") * (64 << 20)
assert files.memory().used_bytes > before.used_bytes + (60 << 20)
print("sound")
"""


def test_another_limit_holds_from_the_next_write_on_and_0_refuses_all() -> None:
    files, time = MemoryFiles(), ManualTime(5)
    guard = MemoryGuard(files, time, 60, 80)
    files.taken = Memory(500, 1000)
    seen = []
    for percent in (60, 49, 60, 0, 60):
        guard.change_limit(percent)
        seen.append(is_accepting(guard))
    files.taken = Memory(0, 1000)
    guard.change_limit(0)
    assert [*seen, is_accepting(guard)] == [True, False, True, False, True, False]


def test_the_shortage_of_memory_grows_until_the_limit_and_stays_while_writes_are_refused() -> None:
    files, time = MemoryFiles(), ManualTime(5)
    guard = MemoryGuard(files, time, 60, 80)
    seen = []
    for used in (480, 540, 600, 601, 571, 570, 480):
        files.taken = Memory(used, 1000)
        is_accepting(guard)
        seen.append(guard.shortage)
        while time.step(time.now_ms() + REFRESH_MS):
            pass
    assert seen == [0, 0.5, 1, 1, 1, 0.75, 0]
