"""Writes small shell scripts that Spark runs in place of `java` or `python`, into a folder that only its owner can
change."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from pyspark_trimq.mistakes import Mistake

_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def write_launcher(path: Path, text: str) -> None:
    """Writes the script atomically: concurrent writers and readers never see a part of it. Raises Mistake if another
    user owns the folder or can write to it."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    found = path.parent.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & _WRITABLE_BY_OTHERS:
        raise Mistake(f"{path.parent} is not a folder that only its owner can write to: remove it, or set TMPDIR")
    if path.exists() and path.read_text() == text:
        return
    written = path.with_name(f"{path.name}.{os.getpid()}")
    written.write_text(text)
    written.chmod(written.stat().st_mode | stat.S_IXUSR)
    written.replace(path)
