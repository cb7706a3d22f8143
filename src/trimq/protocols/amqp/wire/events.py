"""Events that a connection parses from received bytes."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from trimq.protocols.amqp.methods import Method

_MESSAGE_BYTES = 400  # overhead of each message besides its properties and body


class Greeting(msgspec.Struct, frozen=True):
    """The peer sent a supported protocol header."""


class Command(msgspec.Struct):
    """Method without content; on channel 0 it concerns the connection."""

    channel: int
    method: Method


class Publish(msgspec.Struct, gc=False):
    """basic.publish with its content. `header`: property flags and list as sent."""

    channel: int
    exchange: str
    key: str
    is_mandatory: bool
    is_immediate: bool
    header: bytes
    body: bytes
    following: Sequence[tuple[bytes, bytes]] = ()
    """Headers and bodies of messages received right after this one with the same method frame."""

    @property
    def held(self) -> int:
        """Approximate memory of the message and those that follow it."""
        following = sum([len(header) + len(body) for header, body in self.following])
        return len(self.header) + len(self.body) + following + _MESSAGE_BYTES * (1 + len(self.following))


class Oversized(msgspec.Struct, frozen=True):
    """Announcement of a message over the size limit. Its content is not kept."""

    channel: int
    size: int


class Acks(msgspec.Struct):
    """Consecutive acknowledgements: of each tag, or, with `is_multiple`, of all up to the only tag."""

    channel: int
    tags: list[int]
    is_multiple: bool


Event = Greeting | Command | Publish | Oversized | Acks
