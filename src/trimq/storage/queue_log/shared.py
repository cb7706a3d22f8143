"""What the logs of all queues of a broker share. Names it, and does nothing."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from trimq.storage.checkpoints.log_checkpoints import Checkpoints
from trimq.storage.group_commit.passes import Passes
from trimq.storage.guards.damages import DamageReports
from trimq.storage.io.files import Files
from trimq.storage.queue_log.ack_writer import AckWriter
from trimq.storage.queue_log.reader import MemoryBudget


class BodyStore(Protocol):
    """What keeps the bodies that several logs refer to."""

    failed_pass: int

    def hold(self, blob: int) -> None: ...

    def release(self, blob: int) -> None: ...

    def recover(self, blob: int) -> bool: ...

    def read(self, blob: int, may_wait: bool) -> bytes: ...


class QueueLogServices(NamedTuple):
    """What every queue log of a broker shares. `budget`: of contents that are kept for readers that keep up. `bodies`
    None: this is where they are kept, which is written before what refers to them."""

    files: Files
    passes: Passes
    checkpoints: Checkpoints
    acks: AckWriter
    budget: MemoryBudget
    segment_bytes: int
    bodies: BodyStore | None
    damages: DamageReports
