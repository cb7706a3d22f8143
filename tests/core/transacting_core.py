"""A core with the operations of a transactional producer; the test controls its timers, passes and power cuts."""

from __future__ import annotations

import random

from doubles import FaultyFiles, PassRunner
from no_rocketmq import NO_ROCKETMQ

from trimq.clock import Clock, ManualTime
from trimq.config import Settings
from trimq.core.assembly.core import open_core
from trimq.core.partitions.stream import Stream
from trimq.core.transactions.coordinator import TransactionCoordinator
from trimq.core.transactions.transaction import PendingCursor, ProducerIdentity, Transaction
from trimq.errors import Refusal
from trimq.formats.kafka_batch.builder import from_records
from trimq.formats.kafka_batch.header import check_sent, walk
from trimq.formats.kafka_batch.markers import read_control
from trimq.formats.kafka_batch.records import iterate_records, to_records
from trimq.metrics import Metrics
from trimq.model import SYSTEM, Layout, Record, StreamId, TopicName
from trimq.storage.group_commit.passes import Ticket
from trimq.storage.io.memory_files import MemoryFiles, Survivors

START_MS = 1_800_000_000_000
TOPIC = "orders"


class TransactingCore:
    def __init__(self, streams: int = 2) -> None:
        self._memory = MemoryFiles()
        self.files = FaultyFiles(self._memory)
        self.time = ManualTime(START_MS)
        self.open()
        self.core.broker.topics.create(SYSTEM, TOPIC, Layout.PARTITION_LOG, streams, {})
        self.settle()

    # -- starts and crashes

    def open(self) -> None:
        self.runner = PassRunner(self.files)
        clock = Clock(self.time, self.time)
        self.core = open_core(
            Settings(rocketmq=NO_ROCKETMQ),
            self.files,
            self.runner.passes,
            clock,
            self.runner.offload,
            random.Random(1),
            Metrics(),
        )
        self.runner.settle()
        self.core.start()

    def settle(self) -> None:
        self.runner.settle()

    def cut_power(self, survivors: Survivors | None = None) -> None:
        """Loses unsynced data and all timers, and starts again."""
        self.core.stop_writes()
        self._memory.crash(survivors)
        self.open()
        self.settle()

    def advance(self, milliseconds: int) -> None:
        until_ms = self.time.now_ms() + milliseconds
        self.settle()
        while self.time.step(until_ms):
            self.settle()

    # -- producer operations

    @property
    def registry(self) -> TransactionCoordinator:
        return self.core.transactions

    def stream(self, number: int = 0) -> Stream:
        return self.core.topics.get(TopicName("", TOPIC)).stream(number)

    def id(self, number: int = 0) -> StreamId:
        return self.stream(number).id

    def init_producer(
        self, name: str = "t", claimed: ProducerIdentity | None = None, timeout_ms: int = 60_000
    ) -> ProducerIdentity:
        taken, _ = self.registry.init_producer(name, claimed, timeout_ms)
        self.settle()
        return taken.producer

    def add(self, producer: ProducerIdentity, *numbers: int, name: str = "t", groups: tuple[str, ...] = ()) -> None:
        self.registry.add(name, producer, [self.id(number) for number in numbers], groups)
        self.settle()

    def write(
        self,
        producer: ProducerIdentity,
        body: bytes,
        number: int = 0,
        sequence: int = 0,
        may_join: bool = False,
        name: str = "t",
    ) -> Ticket:
        """Appends one transactional record; the pass is not ended."""
        stream = self.stream(number)
        batch = from_records(
            [Record(body, timestamp_ms=self.time.now_ms())],
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            base_sequence=sequence,
            transactional=True,
        )
        header = check_sent(batch)
        self.core.broker.transactions.check_append(SYSTEM, name, stream, header, may_join)
        topic = self.core.topics.get(TopicName("", TOPIC))
        return self.core.broker.partitions.append(SYSTEM, topic, stream, batch, header).ticket

    def commit_cursor(self, producer: ProducerIdentity, offset: int, number: int = 0, name: str = "t") -> None:
        self.registry.commit_cursors(name, producer, "g", [PendingCursor("g", self.id(number), offset, 0)])
        self.settle()

    def begin_end(
        self, producer: ProducerIdentity, is_commit: bool = True, bumps_epoch: bool = False, name: str = "t"
    ) -> list[Transaction | Refusal]:
        """Requests the end of a transaction; the results are appended to the list."""
        answers: list[Transaction | Refusal] = []
        self.registry.end(name, producer, is_commit, bumps_epoch, lambda outcome, _: answers.append(outcome))
        return answers

    def end(
        self, producer: ProducerIdentity, is_commit: bool = True, bumps_epoch: bool = False, name: str = "t"
    ) -> Transaction:
        answers = self.begin_end(producer, is_commit, bumps_epoch, name)
        self.settle()
        (answer,) = answers
        assert isinstance(answer, Transaction), answer
        return answer

    # -- reads

    def committed(self, number: int = 0) -> list[bytes]:
        """Returns the bodies that a read-committed consumer returns after its client-side filter."""
        stream = self.stream(number)
        end = stream.stable_end
        found = stream.read(stream.start, 1 << 20, end)
        aborted = [(each.producer_id, each.first_offset, each.last_offset) for each in stream.aborted(0, end)]
        bodies: list[bytes] = []
        for part in found.parts:
            for position, header in walk(part, 0, len(part)):
                if header.is_control or any(
                    id == header.producer_id and first <= header.base_offset < last for id, first, last in aborted
                ):
                    continue
                bodies += [record.body or b"" for record in to_records(part, position)]
        return bodies

    def shape(self, number: int = 0) -> str:
        """One letter for each batch: d data, C commit, A abort."""
        stream = self.stream(number)
        letters = ""
        for part in stream.read(stream.start, 1 << 20).parts:
            for position, header in walk(part, 0, len(part)):
                letters += _letter(part[position : position + header.size]) if header.is_control else "d"
        return letters

    def cursor(self, number: int = 0) -> int | None:
        seen = self.core.broker.groups.cursors(SYSTEM, "g").cursors.get(self.id(number))
        return None if seen is None else seen.offset

    def is_unstable(self, number: int = 0) -> bool:
        return self.core.broker.groups.is_offset_unstable("g", self.id(number))


def _letter(batch: memoryview) -> str:
    marker = read_control(next(iterate_records(batch)))
    assert marker is not None
    return "C" if marker.commit else "A"
