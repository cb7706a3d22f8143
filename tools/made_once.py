"""What is fetched or built to compare with the genuine thing: made once, then kept in the user's cache folder, never in
the project."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from pathlib import Path


def made_once(kind: str, name: str, make: Callable[[Path], None]) -> Path:
    """The folder of this name, which `make` fills unless an earlier run did so to the end."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "trimq" / kind / name
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several processes may want the same
        if not (folder / "complete").exists():
            make(folder)
            (folder / "complete").touch()
    return folder
