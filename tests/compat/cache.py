"""Requirements of tests with foreign tools, and cached builds of them."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest


def require(*programs: str) -> None:
    """Skips the test if one of these programs is missing."""
    for program in programs:
        if shutil.which(program) is None:
            pytest.skip(f"there is no {program} on this machine")


def do(command: Sequence[str], folder: Path, environment: Mapping[str, str] | None = None) -> str:
    """Runs a build step. Returns its output; fails the test if the step fails."""
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
