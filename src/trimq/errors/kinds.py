"""Kinds of errors: a `Refusal` is returned to the client, a `ProtocolError` closes the connection, a `StartupError`
ends the start with one sentence, `Damage` stops the broker, and a `ColdRead` asks the caller to load bytes from
disk."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from contextlib import ExitStack


class Refusal(Exception):
    """An expected error that the broker returns to the client. The connection stays open."""

    retriable = False


class ColdRead(Exception):
    """The requested bytes are cold data, and the caller must not block on the disk. Call `warm` once, off the event
    loop, then repeat the read."""

    def __init__(self, file: str, position: int, warm: Callable[[], None]) -> None:
        super().__init__(f"byte {position} of {file} is not in memory")
        self.file = file
        self.position = position
        self.warm = warm

    @classmethod
    def joined(cls, several: Sequence[ColdRead]) -> ColdRead:
        """Returns one error whose `warm` calls all of theirs, even if some fail: each holds a descriptor until
        called."""

        def warm() -> None:
            with ExitStack() as stack:
                for one in several:
                    stack.callback(one.warm)

        return cls(several[0].file, several[0].position, warm)


class LargeSearch(Exception):
    """A search would keep the event loop for too long in one large batch. Call `work` once, off the event loop, then
    repeat the search with the outcome, a result or a BadBatch, under `key`."""

    def __init__(self, key: Hashable, work: Callable[[], object]) -> None:
        super().__init__("the batch must be searched off the event loop")
        self.key = key
        self.work = work


class ProtocolError(Exception):
    """The peer violated the protocol. The broker closes the connection, with the protocol's own error if it has one."""


class Stopping(ProtocolError):
    """The broker is stopping. No fault of the peer, but connections are closed in the same way."""

    def __str__(self) -> str:
        return "the broker is stopping"


class ForcedClose(Stopping):
    """An administrator closes the connection."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return self.reason


class StartupError(Exception):
    """The broker or a command cannot start. The text is one clear sentence for the operator."""


class Damage(Exception):
    """Stored bytes differ from the bytes that were written. The text names the file, the position and the remedy."""
