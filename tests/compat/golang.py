"""Programs in Go, built with the modules in their go.sum."""

from __future__ import annotations

from pathlib import Path

from compat.cache import do, require
from compat.programs import SOURCES, Program, fingerprint

from tools.download_cache import cached_folder


def go_client(name: str) -> Program:
    """The program in this folder of `clients`. Skips the test where Go is missing."""
    require("go")
    sources = SOURCES / name

    def build_into(folder: Path) -> None:
        do(["go", "build", "-buildvcs=false", "-mod=readonly", "-o", str(folder / "client"), "."], sources)

    folder = cached_folder("go", fingerprint(path for path in sources.iterdir() if path.is_file()), build_into)
    return Program((str(folder / "client"),))
