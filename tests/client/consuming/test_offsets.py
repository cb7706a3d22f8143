"""Offsets in a file. Check 19 of the acceptance list."""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path

import pytest

from trimq.client.consuming.offsets import FileOffsets, LocalFile
from trimq.client.messages import MessageQueue

A, B = MessageQueue("orders", "broker-a", 0), MessageQueue("orders", "broker-a", 1)


def read(folder: Path, queue: MessageQueue) -> int | None:
    return asyncio.run(LocalFile(folder).of_group("g").read(queue))


def write(folder: Path, offsets: dict[MessageQueue, int]) -> None:
    asyncio.run(LocalFile(folder).of_group("g").write(offsets))


def test_offsets_are_there_after_a_restart(tmp_path: Path) -> None:
    assert read(tmp_path, A) is None
    write(tmp_path, {A: 5})
    write(tmp_path, {B: 7})
    assert (read(tmp_path, A), read(tmp_path, B)) == (5, 7)
    assert (tmp_path / "default" / "g" / "offsets.json").exists()


@pytest.mark.parametrize("damage", [b"", b"[{", b"{}", b"\xff"])
def test_a_damaged_file_falls_back_to_the_previous_one(
    tmp_path: Path, damage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path, {A: 5})
    write(tmp_path, {A: 6})
    (tmp_path / "default" / "g" / "offsets.json").write_bytes(damage)
    assert read(tmp_path, A) == 5
    assert any(record.levelno == logging.WARNING for record in caplog.records)
    # The damaged file does not replace the good backup.
    write(tmp_path, {B: 1})
    (tmp_path / "default" / "g" / "offsets.json").unlink()
    assert read(tmp_path, A) == 5


@pytest.mark.parametrize("survived", [0, 1])
def test_a_process_that_ends_between_write_and_rename_loses_no_older_offsets(
    tmp_path: Path, survived: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, {A: 5})
    write(tmp_path, {A: 6})
    replace, calls = os.replace, 0

    def dying(source: Path, target: Path) -> None:
        nonlocal calls
        if calls == survived:
            raise KeyboardInterrupt
        calls += 1
        replace(source, target)

    monkeypatch.setattr(os, "replace", dying)
    with pytest.raises(KeyboardInterrupt):
        LocalFile(tmp_path).of_group("g")._store(b"[]")
    monkeypatch.undo()
    assert read(tmp_path, A) == 6


def test_groups_and_clients_have_files_of_their_own(tmp_path: Path) -> None:
    one, other = LocalFile(tmp_path, "a").of_group("x|../y"), LocalFile(tmp_path, "b").of_group("x|../y")
    asyncio.run(one.write({A: 1}))
    assert asyncio.run(other.read(A)) is None
    assert asyncio.run(one.read(A)) == 1
    (file,) = tmp_path.rglob("offsets.json")
    assert file.relative_to(tmp_path).parts[:-2] == ("a",)
    assert isinstance(one, FileOffsets)
