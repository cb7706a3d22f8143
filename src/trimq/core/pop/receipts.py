"""What is asked for by those who take messages out one by one, and what they are given."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from trimq.core.commit_log.stream import MessageFilter
from trimq.core.commit_log.topics import CommitLogTopic
from trimq.formats.rocketmq_unit.unit import Unit, read_unit
from trimq.storage.group_commit.passes import Ticket


class Receipt(NamedTuple):
    """By this a message that is out is known: whether it had come back before, its place there, and when it was
    taken. Of a message that was taken again the earlier receipt is worth nothing."""

    is_retry: bool
    number: int
    offset: int
    pop_time_ms: int


class PopRequest(NamedTuple):
    """`numbers` are the streams to take from, in this order. `from_end`: a group that has never read begins at the
    end, unless the stream still has its first message. In order: nothing more is given of a stream of which something
    is out, except to the same `attempt_id`, who gets the same again."""

    numbers: Sequence[int]
    max_count: int
    invisible_ms: int
    message_filter: MessageFilter | None = None
    from_end: bool = False
    is_ordered: bool = False
    attempt_id: str = ""
    max_bytes: int = 256 * 1024


class PoppedMessage(NamedTuple):
    """One message that is out. `data` is its unit as it stands in the log, of `topic`: the one that was asked for, or
    the group's own of what came back. `tries` counts how often it was given in order before."""

    receipt: Receipt
    topic: CommitLogTopic
    data: memoryview
    deadline_ms: int
    tries: int

    def unit(self) -> Unit:
        return read_unit(self.data)


class PopResult(NamedTuple):
    """`rest` counts what was not looked at. The messages are the caller's once the ticket's pass is durable; None:
    nothing had to be kept."""

    messages: list[PoppedMessage]
    rest: int
    ticket: Ticket | None
