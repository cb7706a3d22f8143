"""Stores written by Apache RocketMQ 5.5.0, one from a clean stop and one from a kill, unpacked into memory."""

from __future__ import annotations

import tarfile
from pathlib import Path

from doubles import FaultyFiles

from trimq.storage.io.memory_files import MemoryFiles

DATA = Path(__file__).parents[2] / "data" / "rocketmq-5.5.0"
SIZES = {"commit_file_bytes": 1 << 20, "index_keys": 2000}


def unpacked(name: str) -> FaultyFiles:
    """Unpacks one of them as the folder `store`."""
    files = MemoryFiles()
    with tarfile.open(DATA / f"{name}.tar.xz") as archive:
        for member in archive:
            path = "store" + member.name.removeprefix(name)
            if member.isdir():
                files.make_folder(path)
                continue
            stream = archive.extractfile(member)
            assert stream is not None
            files.make_folder(path.rpartition("/")[0])
            files.open(path, create=True).write(0, [stream.read()])
    files.sync_all()
    return FaultyFiles(files)
