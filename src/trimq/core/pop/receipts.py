"""Requests and results of POP, and the receipts of messages in flight."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from trimq.core.commit_log.stream import MessageFilter
from trimq.core.commit_log.topics import CommitLogTopic
from trimq.formats.rocketmq_unit.unit import Unit, read_unit
from trimq.storage.group_commit.passes import Ticket


class Receipt(NamedTuple):
    """Identifies a message in flight: whether it is from the retry topic, its queue and offset, and when it was popped.
    Popping the message again invalidates the earlier receipt."""

    is_retry: bool
    number: int
    offset: int
    pop_time_ms: int


class PopRequest(NamedTuple):
    """Parameters of one pop. `numbers`: queues to read, in this order. `from_end`: a group without a cursor starts at
    the end, unless the queue still has its first message. `is_ordered`: a queue with messages in flight delivers
    nothing more, except to a request with the same `attempt_id`, which gets the same messages again."""

    numbers: Sequence[int]
    max_count: int
    invisible_ms: int
    message_filter: MessageFilter | None = None
    from_end: bool = False
    is_ordered: bool = False
    attempt_id: str = ""
    max_bytes: int = 256 * 1024


class PoppedMessage(NamedTuple):
    """One message in flight. `data` is the message in its log format. `topic` is the requested topic or the group's
    retry topic. `tries` counts earlier deliveries in order."""

    receipt: Receipt
    topic: CommitLogTopic
    data: memoryview
    deadline_ms: int
    tries: int

    def unit(self) -> Unit:
        return read_unit(self.data)


class PopResult(NamedTuple):
    """`rest` counts messages that were not scanned. The caller may deliver the messages once the ticket's pass is
    durable; None: nothing had to be stored."""

    messages: list[PoppedMessage]
    rest: int
    ticket: Ticket | None
