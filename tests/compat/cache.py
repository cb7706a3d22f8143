"""What tests with foreign tools fetch and build: made once, then kept in the user's cache folder."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest


def require(*programs: str) -> None:
    """Skips the test where one of them is missing."""
    for program in programs:
        if shutil.which(program) is None:
            pytest.skip(f"there is no {program} on this machine")


def made_once(kind: str, name: str, make: Callable[[Path], None]) -> Path:
    """The folder of this name, which `make` fills unless an earlier run did so to the end."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "trimq" / kind / name
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # tests run in several processes
        if not (folder / "complete").exists():
            make(folder)
            (folder / "complete").touch()
    return folder


def do(command: Sequence[str], folder: Path, environment: Mapping[str, str] | None = None) -> str:
    """What this step of the making prints. The test fails where the step does."""
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **(environment or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        pytest.fail(f"{' '.join(command)} failed:\n{done.stdout[-3000:]}", pytrace=False)
    return done.stdout
