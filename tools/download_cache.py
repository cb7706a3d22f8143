"""Downloads and builds for comparison with other brokers and clients: made once, then kept in the user's cache folder,
never in the project."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from pathlib import Path


def cached_folder(kind: str, name: str, make: Callable[[Path], None]) -> Path:
    """Returns the folder of this name, which `make` fills unless an earlier run completed it."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "trimq" / kind / name
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several processes may need the same folder
        if not (folder / "complete").exists():
            make(folder)
            (folder / "complete").touch()
    return folder
