"""The lock file of the data folder that Java programs use too: held against them, and not taken from them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from trimq.errors import StartupError
from trimq.storage.io.folder_lock import FolderLock

HOLD = """
import fcntl, sys
with open(sys.argv[1], "r+") as held:
    fcntl.lockf(held, fcntl.LOCK_EX | fcntl.LOCK_NB, 1)
    print("held", flush=True)
    input()
"""


def test_a_file_that_another_program_holds_is_refused_and_ours_is_refused_to_others(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    lock = FolderLock(str(tmp_path))
    lock.hold("store/lock")  # the file does not exist yet
    (tmp_path / "store" / "lock").write_text("lock")
    command = [sys.executable, "-c", HOLD, str(tmp_path / "store" / "lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with pytest.raises(StartupError, match="store/lock is locked by another program"):
            lock.hold("store/lock")
        other.communicate("\n")
    lock.hold("store/lock")
    refused = subprocess.run(command, input="\n", capture_output=True, text=True, check=False)
    assert "BlockingIOError" in refused.stderr
    lock.release()
    assert subprocess.run(command, input="\n", capture_output=True, text=True, check=False).stdout == "held\n"
