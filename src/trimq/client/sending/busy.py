"""Behaviour of sends when the broker is busy: wait, drop what matters least, or keep it in local files until later."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class Wait:
    """Tries again, with growing pauses, until the time of the send is over."""


@dataclass(frozen=True, slots=True)
class Drop:
    """Drops messages with a priority below this one, and waits with the others. The result is `Dropped.BUSY`."""

    below: int


@dataclass(frozen=True, slots=True)
class Spool:
    """Appends messages to files in `folder` when the broker is busy or cannot be reached, and sends them later, in
    order for each key. While messages wait there, all further ones go there, too. The result is `Spooled`: the message
    is on disk. A message may be sent twice, with the same id, when a process dies. For `send` and `send_nowait`;
    one-way messages and batches are not spooled. More than `most_bytes` raise BufferFull."""

    folder: str | os.PathLike[str]
    most_bytes: int = 1024 * 1024 * 1024


class Spooled(NamedTuple):
    """Result of a send whose message waits in the spool."""

    id: str


OnBusy = Wait | Drop | Spool
