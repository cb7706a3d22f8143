"""The programs in Rust, built with the crates that their lock files name. Those files do not say from where the crates
come (`source = "registry"`): that is Cargo's to know."""

from __future__ import annotations

import re
import shutil
import tempfile
from pathlib import Path

from compat.cache import do, require
from compat.programs import SOURCES, Program, fingerprint

from tools.download_cache import cached_folder


def rust_client(name: str) -> Program:
    """The program of this folder of `clients`. Skips the test where Cargo is missing."""
    require("cargo")
    sources = SOURCES / name
    named = [sources / "Cargo.toml", sources / "Cargo.lock"]
    # To compile the crates is most of the work: they are kept apart, for every program of ours that names the same.
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
    """Write into the lock file from where Cargo, as it is set up here, takes its crates."""
    lock = folder / "Cargo.lock"
    pinned = lock.read_text()
    lock.unlink()
    do(["cargo", "generate-lockfile", "--quiet"], folder)
    found = re.search(r'^source = "(.+)"$', lock.read_text(), re.MULTILINE)
    assert found is not None, "every crate comes from somewhere"
    lock.write_text(pinned.replace('source = "registry"', f'source = "{found[1]}"'))
