"""Programs in Node.js, with the packages in their lock files."""

from __future__ import annotations

import shutil
from pathlib import Path

from compat.cache import do, require
from compat.programs import SOURCES, Program, fingerprint

from tools.download_cache import cached_folder


def node_client(name: str) -> Program:
    """The program in this folder of `clients`. Skips the test where Node or npm is missing."""
    require("node", "npm")
    sources = [path for path in (SOURCES / name).iterdir() if path.is_file()]

    def install_into(folder: Path) -> None:
        for path in sources:
            shutil.copy(path, folder)
        do(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"], folder)

    folder = cached_folder("node", fingerprint(sources), install_into)
    # Without these, kafkajs prints a warning about its partitioner, and Node one about a timer of kafkajs, at every
    # start.
    quiet = {"KAFKAJS_NO_PARTITIONER_WARNING": "1", "NODE_NO_WARNINGS": "1"}
    return Program(("node", str(folder / "client.js")), quiet)
