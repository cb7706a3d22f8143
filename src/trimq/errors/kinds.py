"""Kinds of what can go wrong: a `Refusal` is an expected no that a client hears about, a `ProtocolError` closes a
connection, a `StartupError` ends the start with one sentence, and `Damage` stops the broker."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack


class Refusal(Exception):
    """An expected no, which the client must hear about. The connection lives."""

    retriable = False


class ColdRead(Exception):
    """The bytes that were asked for are on disk only, and whoever asked may not wait for them. Call `warm`, once, off
    the event loop, then ask again."""

    def __init__(self, file: str, position: int, warm: Callable[[], None]) -> None:
        super().__init__(f"byte {position} of {file} is on disk only")
        self.file = file
        self.position = position
        self.warm = warm

    @classmethod
    def joined(cls, several: Sequence[ColdRead]) -> ColdRead:
        """All of them are warmed together, whatever becomes of each: it holds a descriptor until then."""

        def warm() -> None:
            with ExitStack() as stack:
                for one in several:
                    stack.callback(one.warm)

        return cls(several[0].file, several[0].position, warm)


class ProtocolError(Exception):
    """The peer broke the protocol. The connection closes, with the protocol's own error where it has one."""


class Stopping(ProtocolError):
    """The broker stops. Nobody's fault, but told in the same way."""

    def __str__(self) -> str:
        return "the broker stops"


class StartupError(Exception):
    """The broker or a command cannot start. Its text is one clear sentence for the person at the keyboard."""


class Damage(Exception):
    """Stored bytes are not what was written. Its text names the file, the position and what to do."""
