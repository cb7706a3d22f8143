"""Programs in Rust, built with the crates in their lock files. These lock files name no registry (`source =
"registry"`): Cargo's configuration decides."""

from __future__ import annotations

import re
import shutil
import tempfile
from pathlib import Path

from compat.cache import do, require
from compat.programs import SOURCES, Program, fingerprint

from tools.download_cache import cached_folder


def rust_client(name: str) -> Program:
    """The program in this folder of `clients`. Skips the test where Cargo is missing."""
    require("cargo")
    sources = SOURCES / name
    named = [sources / "Cargo.toml", sources / "Cargo.lock"]
    # Compiling the crates takes most of the time: they are cached separately, for every program with the same lock
    # file.
    crates = cached_folder("rust-crates", fingerprint(named), lambda _: None)

    def build_into(folder: Path) -> None:
        with tempfile.TemporaryDirectory() as place:
            shutil.copytree(sources, place, dirs_exist_ok=True)
            _complete_lock(Path(place))
            do(["cargo", "build", "--quiet", "--locked", "--target-dir", str(crates)], Path(place))
        shutil.copy(crates / "debug" / "client", folder)

    folder = cached_folder("rust", fingerprint([*named, *(sources / "src").iterdir()]), build_into)
    return Program((str(folder / "client"),))


def _complete_lock(folder: Path) -> None:
    """Writes the registry of the local Cargo configuration into the lock file."""
    lock = folder / "Cargo.lock"
    pinned = lock.read_text()
    lock.unlink()
    do(["cargo", "generate-lockfile", "--quiet"], folder)
    found = re.search(r'^source = "(.+)"$', lock.read_text(), re.MULTILINE)
    assert found is not None, "Cargo.lock names no registry"
    lock.write_text(pinned.replace('source = "registry"', f'source = "{found[1]}"'))
