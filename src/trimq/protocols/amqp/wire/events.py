"""What a connection makes of the bytes that it receives."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from trimq.protocols.amqp.methods import Method

_MESSAGE_BYTES = 400  # of each message, besides what it says


class Greeting(msgspec.Struct, frozen=True):
    """The peer began with a header that is served."""


class Command(msgspec.Struct):
    """A method without content. On channel 0 it concerns the connection."""

    channel: int
    method: Method


class Publish(msgspec.Struct, gc=False):
    """basic.publish with its content. `header`: the flags and the list of its properties, as they were sent."""

    channel: int
    exchange: str
    key: str
    is_mandatory: bool
    is_immediate: bool
    header: bytes
    body: bytes
    following: Sequence[tuple[bytes, bytes]] = ()
    """Headers and bodies of messages that came right after it, with the same method before them."""

    @property
    def held(self) -> int:
        """How much memory it takes, about, with those that follow it."""
        following = sum([len(header) + len(body) for header, body in self.following])
        return len(self.header) + len(self.body) + following + _MESSAGE_BYTES * (1 + len(self.following))


class Oversized(msgspec.Struct, frozen=True):
    """A message was announced that is larger than allowed. Nothing of it was kept."""

    channel: int
    size: int


class Acks(msgspec.Struct):
    """Acknowledgements that came one after the other: of each tag, or of all up to the only one."""

    channel: int
    tags: list[int]
    is_multiple: bool


Event = Greeting | Command | Publish | Oversized | Acks
