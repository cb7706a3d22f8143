"""A commit-log store on files in memory. The test ends and syncs passes, makes them fail, and crashes, stops and
reopens the store."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from doubles import AsyncPassRunner, FaultyFiles, PassRunner

from trimq.formats.rocketmq_unit.hosts import pack_host
from trimq.formats.rocketmq_unit.properties import find_property, tags_code, write_properties
from trimq.formats.rocketmq_unit.unit import Unit, UnitDraft, check_unit, encode_unit
from trimq.storage.commit_log.checkpoint import CommitCheckpoints
from trimq.storage.commit_log.commit_pool import CommitPool
from trimq.storage.commit_log.file_preparation import FilePreparation, prepare_files
from trimq.storage.commit_log.log import AppendedUnit
from trimq.storage.commit_log.lookup import find_key
from trimq.storage.commit_log.settings import CommitSettings
from trimq.storage.commit_log.store import ROOT, CommitStore
from trimq.storage.io.memory_files import MemoryFiles, NameChange, Survivors
from trimq.storage.tables.table import open_table

START_MS = 1_800_000_000_000
HOST = pack_host("127.0.0.1", 10911)
SETTINGS = CommitSettings(
    file_bytes=4096,
    queue_file_entries=8,
    index_slots=7,
    index_entries=16,
    checkpoint_bytes=1 << 30,
    retention_ms=10_000,
)


def draft_of(topic: str, queue: int, body: bytes, keys: str = "", tags: str = "", sys_flag: int = 0) -> UnitDraft:
    properties = (
        {"UNIQ_KEY": f"U{body[:20].decode()}"} | ({"KEYS": keys} if keys else {}) | ({"TAGS": tags} if tags else {})
    )
    return UnitDraft(topic.encode(), queue, body, write_properties(properties), 0, sys_flag, START_MS - 5, HOST)


def code_of(unit: Unit) -> int:
    return tags_code(find_property(unit.properties, "TAGS") or "")


class TornPages:
    """Survivors of a power cut for files that are written at any position: each page has one of its unsynced
    versions."""

    def __init__(self, seed: int, keeps_names: bool = True, page_bytes: int = 64) -> None:
        self._rng = random.Random(seed)
        self._keeps_names = keeps_names
        self._page_bytes = page_bytes

    def names(self, folder: str, changes: Sequence[NameChange]) -> Iterable[NameChange]:
        return changes if self._keeps_names else ()

    def contents(self, name: str, versions: Sequence[bytes]) -> bytes:
        if not name.startswith(ROOT):
            return versions[self._rng.randrange(len(versions))]
        size = len(self._rng.choice(versions))
        page = self._page_bytes
        pages = [
            self._rng.choice(versions)[at : at + page].ljust(min(page, size - at), b"\0")[: size - at]
            for at in range(0, size, page)
        ]
        return b"".join(pages)


class CommitBench:
    make_runner: type[PassRunner] = PassRunner

    def __init__(self, care: Sequence[str] = (), **changes: Any) -> None:
        """`care`: the file preparations that are enabled, as in `prepare_files`."""
        self._preparation = {name: name in care for name in ("preallocates", "warms", "locks")}
        self.memory = MemoryFiles()
        self.settings = replace(SETTINGS, **changes)
        self.now_ms = START_MS
        self.files: FaultyFiles
        self.runner: PassRunner
        self.store: CommitStore
        self.care: FilePreparation | None
        self.open()

    def open(self) -> None:
        self.files = FaultyFiles(self.memory)
        self.runner = self.make_runner(self.files)
        self.memory.make_folder("tables")
        table = open_table(self.files, "tables", "commit", self.runner.passes, list, self.runner.offload)
        self.store = CommitStore(
            self.files,
            self.runner.passes,
            CommitCheckpoints(table),
            self.settings,
            lambda: self.now_ms,
            code_of,
            self.make_pool(),
        )
        care = self.care = prepare_files(
            self.files, ROOT, self.settings.file_bytes, self.runner.offload, **self._preparation
        )
        if care is not None:
            self.store.log.use_preparation(care)
            care.open()
        self.store.open()
        if care is not None:
            care.begin(self.store.log.journal.active.file)
        self.settle()

    def make_pool(self) -> CommitPool | None:
        return None

    def settle(self) -> None:
        self.runner.settle()
        assert self.runner.failures == []

    def append(self, topic: str, queue: int, body: bytes, tags: str = "", **fields: Any) -> AppendedUnit:
        draft = draft_of(topic, queue, body, tags=tags, **fields)
        return self.store.append(self.store.queue(topic, queue), draft, tags_code(tags), HOST)

    def put(self, topic: str, queue: int, *bodies: bytes, **fields: Any) -> list[AppendedUnit]:
        """Appends in one pass and makes it durable."""
        placed = [self.append(topic, queue, body, **fields) for body in bodies]
        self.settle()
        return placed

    def bodies(self, topic: str, queue: int) -> list[bytes]:
        return [bytes(unit.body) for unit in self.units(topic, queue)]

    def units(self, topic: str, queue: int) -> list[Unit]:
        """Returns all readable units, each checked."""
        found = self.store.queue(topic, queue)
        units = []
        for offset in range(found.start, found.durable_end):
            position, size, _ = found.entry(offset)
            unit = check_unit(self.store.log.view(position, size), position=position)
            assert (unit.size, unit.queue_offset, unit.queue_id, unit.topic) == (size, offset, queue, topic.encode())
            units.append(unit)
        return units

    def find(self, topic: str, key: str, begin_ms: int = 0, end_ms: int = 2 * START_MS) -> list[bytes]:
        """The bodies of the units that have this key, newest first."""
        found = find_key(self.store.log, self.store.keys, topic, key, begin_ms, end_ms)
        return [bytes(unit.body) for unit in found]

    def stop(self) -> None:
        """Stops cleanly."""
        self.store.close()
        if self.care is not None:
            self.care.close()
        self.settle()

    def crash(self, survivors: Survivors | None = None) -> None:
        if survivors is None:
            self.memory.crash()
        else:
            self.memory.crash(survivors)
        self.open()

    def kill(self) -> None:
        """The process dies; the page cache survives."""
        self.open()

    def names(self, folder: str) -> list[str]:
        return self.memory.names(f"{ROOT}/{folder}".rstrip("/"))

    def read(self, name: str) -> bytes:
        file = self.memory.open(f"{ROOT}/{name}")
        return file.read(0, file.size())


class PooledBench(CommitBench):
    """With flush = pooled: time is driven by the test."""

    make_runner = AsyncPassRunner
    COMMIT_MS = 300
    SYNC_MS = 200  # of AsyncPassRunner

    def make_pool(self) -> CommitPool:
        assert isinstance(self.runner, AsyncPassRunner)
        self.time = self.runner.time
        return CommitPool(self.runner.passes, self.time, self.COMMIT_MS)

    def pass_time(self, milliseconds: int) -> None:
        """Runs everything that becomes due, but no syncs."""
        until_ms = self.time.now_ms() + milliseconds
        while self.time.step(until_ms):
            self.end_turn()

    def settle(self) -> None:
        self.runner.passes.end_soon()
        super().settle()

    def sync(self) -> None:
        """Commits and syncs everything."""
        for _ in range(2):  # the sync of an earlier pass may be under way
            self.pass_time(self.COMMIT_MS + self.SYNC_MS)
            self.settle()

    def end_turn(self) -> None:
        """Ends a turn of the loop."""
        self.runner.end_pass()


def unit_of(draft: UnitDraft, placed: AppendedUnit) -> bytes:
    return encode_unit(draft, placed.queue_offset, placed.position, placed.store_ms, HOST)
