"""Dependencies that all queue logs of a broker share. No behaviour."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from trimq.storage.checkpoints.log_checkpoints import Checkpoints
from trimq.storage.group_commit.passes import Passes
from trimq.storage.guards.damages import DamageReports
from trimq.storage.io.files import Files
from trimq.storage.queue_log.ack_writer import AckWriter
from trimq.storage.queue_log.reader import MemoryBudget


class BodyStore(Protocol):
    """Stores bodies that several logs refer to."""

    failed_pass: int

    def hold(self, blob: int) -> None: ...

    def release(self, blob: int) -> None: ...

    def recover(self, blob: int) -> bool: ...

    def read(self, blob: int, may_wait: bool) -> bytes: ...


class QueueLogServices(NamedTuple):
    """`budget`: memory for recent contents, for consumers that keep up. `bodies` None: this is a log of shared bodies,
    which is written before the logs that refer to them."""

    files: Files
    passes: Passes
    checkpoints: Checkpoints
    ack_writer: AckWriter
    budget: MemoryBudget
    segment_bytes: int
    bodies: BodyStore | None
    damages: DamageReports
