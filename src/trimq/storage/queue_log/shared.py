"""What the logs of all queues of a broker share. Names it, and does nothing."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from trimq.storage.checkpoints.log_checkpoints import Checkpoints
from trimq.storage.group_commit.passes import Passes
from trimq.storage.guards.damages import Damages
from trimq.storage.io.files import Files
from trimq.storage.queue_log.ack_writer import AckWriting
from trimq.storage.queue_log.reader import Budget


class Bodies(Protocol):
    """What keeps the bodies that several logs refer to."""

    undone_in: int

    def hold(self, blob: int) -> None: ...

    def release(self, blob: int) -> None: ...

    def recover(self, blob: int) -> bool: ...

    def read(self, blob: int, may_wait: bool) -> bytes: ...


class QueueParts(NamedTuple):
    """What every queue log of a broker shares. `budget`: of contents that are kept for readers that keep up. `bodies`
    None: this is where they are kept, which is written before what refers to them."""

    files: Files
    passes: Passes
    checkpoints: Checkpoints
    acks: AckWriting
    budget: Budget
    segment_bytes: int
    bodies: Bodies | None
    damages: Damages
