"""A whole core on files in memory. The test ends and syncs passes, makes writes fail, cuts the power and moves the
clock."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Iterable, Sequence
from typing import Any

from doubles import Before, FaultyFiles, PassRunner
from no_rocketmq import NO_ROCKETMQ

from trimq.clock import Clock, ManualTime
from trimq.config import Settings
from trimq.core.assembly.core import Core, open_core
from trimq.core.partitions.stream import Stream
from trimq.core.partitions.topics import Topic, Topics
from trimq.formats.kafka_batch.builder import from_records
from trimq.formats.kafka_batch.header import check_sent
from trimq.metrics import Metrics
from trimq.model import SYSTEM, Layout, Record, TopicName
from trimq.storage.io.memory_files import MemoryFiles, NameChange, Survivors
from trimq.storage.partition_log.store import ROOT

START_MS = 1_800_000_000_000
EXPANDED = 1 << 20


class AnyChanges:
    """Survivors of a power cut: each unsynced change of names and each unsynced version of a file is kept or lost at
    random."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def names(self, folder: str, changes: Sequence[NameChange]) -> Iterable[NameChange]:
        return [change for change in changes if self._random.random() < 0.5]

    def contents(self, name: str, versions: Sequence[bytes]) -> bytes:
        return self._random.choice(versions)


class CoreBench:
    def __init__(self, settings: Settings | None = None, memory: MemoryFiles | None = None) -> None:
        self.memory = memory or MemoryFiles()
        self.settings = settings or Settings(rocketmq=NO_ROCKETMQ)
        self.time = ManualTime(START_MS)
        self._lives = 0
        self.core: Core
        self.open()

    # -- starts, stops and crashes

    def open(self, before: Before | None = None) -> None:
        """Starts the core. `before` is called ahead of every change of a file."""
        self._lives += 1
        self.files = FaultyFiles(self.memory)
        self.files.before = before or self.files.before
        self.runner = PassRunner(self.files)
        clock = Clock(self.time, self.time)
        rng = random.Random(self._lives)
        self.metrics = Metrics()
        self.core = open_core(
            self.settings, self.files, self.runner.passes, clock, self.runner.offload, rng, self.metrics
        )
        self.settle()
        self.core.start()

    def settle(self) -> None:
        self.runner.settle()
        assert self.runner.failures == []

    def step(self) -> None:
        """Ends a pass, and runs one piece of work off the loop."""
        self.runner.end_pass()
        self.runner.offload.run_one()

    def crash(self, survivors: Survivors | None = None) -> None:
        self.core.stop_writes()
        self.memory.crash(survivors)
        self.open()

    def kill(self) -> None:
        """The process dies; the page cache survives."""
        self.core.stop_writes()
        self.open()

    def restart(self) -> None:
        self.core.stop_writes()
        self.core.close()
        self.settle()
        self.open()

    def advance(self, milliseconds: int) -> None:
        until_ms = self.time.now_ms() + milliseconds
        self.settle()
        while self.time.step(until_ms):
            self.settle()
        self.settle()

    def fail_writes(self, where: str = "") -> None:
        """Makes writes fail in all files with `where` in their name."""

        def refuse(operation: str, name: str) -> None:
            if operation == "write" and where in name:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), name)

        self.files.before = refuse

    def mend(self) -> None:
        self.files.before = lambda operation, name: None

    # -- topics

    @property
    def topics(self) -> Topics:
        return self.core.topics

    def begin_create(self, name: str, streams: int = 1, **settings: str) -> Any:
        return self.topics.create(TopicName("", name), Layout.PARTITION_LOG, streams, settings)

    def create(self, name: str, streams: int = 1, **settings: str) -> Topic:
        topic, ticket = self.begin_create(name, streams, **settings)
        self.settle()
        assert ticket.refusal is None
        return topic  # type: ignore[no-any-return]

    def topic(self, name: str) -> Topic:
        return self.topics.get(TopicName("", name))

    def names(self) -> list[str]:
        return sorted(topic.name.name for topic in self.topics)

    def folders(self) -> list[str]:
        return [name for name in self.memory.names(ROOT) if not name.endswith(".leaving")]

    # -- records

    def append(self, stream: Stream, *bodies: bytes, timestamp_ms: int | None = None, **fields: Any) -> int:
        """Appends one batch, makes it durable, and returns its first offset."""
        now_ms = self.time.now_ms() if timestamp_ms is None else timestamp_ms
        batch = from_records([Record(body, timestamp_ms=now_ms) for body in bodies], **fields)
        appended = self.core.appender.append(stream, batch, check_sent(batch))
        self.settle()
        assert appended.ticket.refusal is None
        return appended.base_offset

    def bodies(self, name: str, index: int = 0) -> list[bytes | None]:
        topic = self.topic(name)
        stream = topic.stream(index)
        return [record.body for record in self.core.broker.partitions.read(SYSTEM, topic, index, stream.start)]
