"""Queue logs on files in memory; the test ends passes and makes them durable."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from doubles import FaultyFiles, PassRunner

from trimq.formats.amqp_content.content import NEVER, TRANSIENT, Content, encode_content
from trimq.storage.checkpoints.log_checkpoints import Checkpoints
from trimq.storage.group_commit.passes import Ticket
from trimq.storage.io.files import Files
from trimq.storage.io.memory_files import MemoryFiles, NameChange, Survivors
from trimq.storage.queue_log.log import QueueLog
from trimq.storage.queue_log.store import QueueStore
from trimq.storage.tables.table import open_table

HEADER = b"\x10\x00\x02"  # delivery mode 2


def content(body: bytes, key: bytes = b"key") -> Content:
    return Content(b"exchange", key, HEADER, body, 1000)


class QueueLogs:
    """One machine: `stop`, `crash` and `kill` end it and open everything again."""

    def __init__(self, segment_bytes: int = 1000, memory_bytes: int = 0, files: Files | None = None) -> None:
        self.memory = MemoryFiles()
        self.files = FaultyFiles(files or self.memory)
        self._segment_bytes = segment_bytes
        self._memory_bytes = memory_bytes
        self._names: list[str] = []
        self.logs: dict[str, QueueLog] = {}
        self._start()

    def _start(self) -> None:
        self.runner = PassRunner(self.files)
        table = open_table(self.files, "tables", "checkpoints", self.runner.passes, list, self.runner.offload)
        self.checkpoints = Checkpoints(table)
        self.store = QueueStore(
            self.files, self.runner.passes, self.checkpoints, self._segment_bytes, self._memory_bytes
        )
        self.store.open(self._names)
        self.logs = {name: self.store.recover(name) for name in self._names}
        self.store.sweep()
        self.files.sync_folder("")
        self.runner.settle()

    def make(self, name: str = "q", is_volatile: bool = False) -> QueueLog:
        if not is_volatile:
            self._names.append(name)
        self.logs[name] = self.store.make(name, is_volatile)
        self.runner.settle()
        return self.logs[name]

    def append(self, log: QueueLog, *bodies: bytes, expires_ms: int = NEVER, is_transient: bool = False) -> Ticket:
        """Appends in one pass and makes it durable."""
        for body in bodies:
            ticket = log.append(encode_content(content(body)), expires_ms, TRANSIENT if is_transient else 0)
        self.runner.settle()
        return ticket

    def settle(self, log: QueueLog, *offsets: int) -> None:
        for offset in offsets:
            log.acks.ack(offset)
        self.runner.settle()

    def remove(self, name: str) -> None:
        self._names.remove(name)
        self.store.remove([self.logs.pop(name)])
        self.runner.settle()

    def stop(self) -> None:
        for log in (*self.logs.values(), *self.store.blobs.logs):
            log.close()
        self.runner.settle()
        self._start()

    def crash(self, survivors: Survivors | None = None) -> None:
        """A power cut."""
        self.memory.crash(survivors)
        self._start()

    def kill(self) -> None:
        """The process dies; the page cache survives."""
        self.runner.end_pass()
        self._start()


def bodies(log: QueueLog) -> list[bytes]:
    """Returns the bodies of all readable messages, in order."""
    found = []
    offset = log.next_live(0)
    while offset is not None:
        found.append(log.peek(offset).content.body)
        offset = log.next_live(offset + 1)
    return found


def numbered(first: int, end: int, size: int = 20) -> list[bytes]:
    return [b"%d " % number + b"." * size for number in range(first, end)]


class NewestBytes:
    """A power cut that keeps all bytes, and some of the changes of names in each folder, by their places."""

    def __init__(self, *kept_names: int) -> None:
        self._kept_names = kept_names

    def names(self, folder: str, changes: Sequence[NameChange]) -> Iterable[NameChange]:
        return [change for place, change in enumerate(changes) if place in self._kept_names]

    def contents(self, name: str, versions: Sequence[bytes]) -> bytes:
        return versions[-1]


def roll_undone_and_repeated(machine: QueueLogs) -> None:
    """A pass begins a segment at offset 2 and is undone; the next pass stores offset 2 in the segment before, and
    begins one at offset 3. Nothing of this is synced."""
    log = machine.make()
    machine.append(log, *numbered(0, 2, size=100))
    machine.files.room_bytes = 150  # room for the footer, and for a part of the message
    refused = log.append(encode_content(content(b"refused" * 40)))
    machine.runner.end_pass()
    machine.files.room_bytes = None
    assert refused.refusal is not None
    log.append(encode_content(content(b"short")))
    log.append(encode_content(content(b"long" * 60)))
    machine.runner.end_pass()
    assert [segment.base for segment in log.segments] == [0, 3]
