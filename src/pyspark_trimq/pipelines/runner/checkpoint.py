"""Checkpoint folders of pipelines. The first run writes its settings into the folder as a signature; every later run
compares it with its own."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from trimq.errors import StartupError

DEFAULT_FOLDER = Path("trimq-checkpoints")
SIGNATURE = "trimq-pipeline.json"
LOCK = "trimq-pipeline.lock"


class Checkpoint:
    """Folder that belongs to one pipeline with one set of settings. `id` identifies it in lakes and at brokers."""

    def __init__(self, folder: Path, id: str) -> None:
        self.folder = folder
        self.id = id

    @property
    def spark(self) -> str:
        """Folder for Spark's offsets, commits and state."""
        return str(self.folder / "spark")


@contextmanager
def open_checkpoint(folder: Path, pipeline: str, signature: Mapping[str, Any]) -> Iterator[Checkpoint]:
    """Creates or continues the checkpoint in `folder` and locks it. In the default folder, which all runs of a pipeline
    share, uses a subfolder for these topics. Raises StartupError if the checkpoint has another signature, or if another
    run holds the lock."""
    if folder == DEFAULT_FOLDER / pipeline:
        folder = folder / _folder_name(signature)
    folder = folder.resolve()  # other processes may have another working directory
    folder.mkdir(parents=True, exist_ok=True)
    with hold_lock(folder / LOCK, f"another run uses the checkpoint {folder}"):
        yield Checkpoint(folder, _check_signature(folder, {"pipeline": pipeline, **json.loads(json.dumps(signature))}))


def _folder_name(signature: Mapping[str, Any]) -> str:
    """Returns a name with the topics, for people, and a checksum, to make it unique."""
    parts = [str(signature[name]) for name in ("subscribe", "subscribePattern", "to") if signature.get(name)]
    readable = re.sub(r"[^A-Za-z0-9._-]+", "_", "-".join(parts))[:60].lstrip(".-") or "all"
    return f"{readable}-{hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:8]}"


@contextmanager
def hold_lock(lock: Path, complaint: str) -> Iterator[None]:
    """Holds an exclusive lock against other runs on this machine. The operating system releases it when the process
    ends."""
    with lock.open("a") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StartupError(complaint) from None
        yield


def _check_signature(folder: Path, wanted: dict[str, Any]) -> str:
    path = folder / SIGNATURE
    try:
        kept = json.loads(path.read_text())
        found, id = dict(kept["signature"]), str(kept["id"])
    except FileNotFoundError:
        if any(each.name != LOCK for each in folder.iterdir()):
            raise StartupError(f"{folder} is neither empty nor a checkpoint: name another folder") from None
        id = uuid.uuid4().hex
        write_atomically(path, json.dumps({"id": id, "signature": wanted}, indent=2))
        return id
    except (ValueError, KeyError, TypeError):
        raise StartupError(f"{path} is damaged: name another folder for the checkpoint") from None
    if found != wanted:
        raise StartupError(f"the checkpoint {folder} has other settings: {_difference(found, wanted)}")
    return id


def _difference(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> str:
    names = [name for name in {**found, **wanted} if found.get(name) != wanted.get(name)]
    return "; ".join(f"its {name} is {found.get(name)!r}, not {wanted.get(name)!r}" for name in names)


def write_atomically(path: Path, text: str) -> None:
    """Replaces the file atomically and durably: after a power cut it has either the old or the new text."""
    beside = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}")
    with beside.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    beside.rename(path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
