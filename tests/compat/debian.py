"""Programs from Debian's packages: downloaded and unpacked into a cache folder, with the libraries that the machine
lacks. Nothing is installed, and root is not needed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from compat.cache import do, require
from compat.programs import Program

from tools.download_cache import cached_folder

_NEEDS = ("depends", "--recurse", *(f"--no-{kind}" for kind in ("recommends", "suggests", "conflicts", "breaks")))
_NEEDS += ("--no-replaces", "--no-enhances")


def debian_program(package: str, version: str) -> Program:
    """The program with the name of the package. Skips the test on a machine without apt."""
    root = debian_folder(package, version)
    return Program((str(root / "usr" / "bin" / package),), {"LD_LIBRARY_PATH": library_path(root)})


def debian_folder(package: str, version: str) -> Path:
    """The folder with the files of the package and of what it needs. Skips the test on a machine without apt."""
    require("apt-get", "apt-cache", "dpkg", "dpkg-query", "dpkg-deb")

    def unpack_into(folder: Path) -> None:
        _fetch(folder, package)
        found = do(["dpkg-deb", "-f", str(next(folder.glob(f"{package}_*.deb"))), "Version"], folder).strip()
        if not found.startswith(version):
            pytest.fail(f"these tests are for {package} {version}, and the machine's Debian has {found}", pytrace=False)
        for archive in folder.glob("*.deb"):
            do(["dpkg", "-x", archive.name, "root"], folder)

    return cached_folder("debian", f"{package}-{version}".replace(":", "-"), unpack_into) / "root"


def library_path(root: Path) -> str:
    return ":".join(map(str, [*root.glob("usr/lib/*-linux-*"), *root.glob("lib/*-linux-*")]))


def _fetch(folder: Path, package: str) -> None:
    """Downloads the package and those of its dependencies that the machine lacks."""
    # Package lists of our own: the machine's lists may be missing or outdated, and must not be changed.
    (folder / "lists" / "partial").mkdir(parents=True, exist_ok=True)
    (folder / "cache" / "archives" / "partial").mkdir(parents=True, exist_ok=True)
    own = ["-o", f"Dir::State::lists={folder}/lists", "-o", f"Dir::Cache={folder}/cache"]
    if os.getuid() == 0:
        own += ["-o", "APT::Sandbox::User=root"]  # apt's sandbox user may have no access to a home folder
    do(["apt-get", "-q", *own, "update"], folder)
    needed = [line for line in do(["apt-cache", *own, *_NEEDS, package], folder).splitlines() if line[:1].isalnum()]
    here = do(["dpkg-query", "-W", "-f", "${Package} ${db:Status-Status}\n"], folder).splitlines()
    installed = {name for name, _, status in (line.partition(" ") for line in here) if status == "installed"}
    missing = sorted({package, *needed} - (installed - {package}))
    do(["apt-get", "-q", *own, "download", *missing], folder)
