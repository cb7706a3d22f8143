"""Deduplication of sends by unique message id: a repeated send of a remembered id is not stored again and gets the
result of the first one. Off by default, except for messages with the property TRIMQ_ONCE."""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

from trimq.protocols.rocketmq.wire.replies import PendingWrite


class SendResult(NamedTuple):
    """Result of a send. `pending` is None for a message that is durable already."""

    id: str
    queue_id: int
    queue_offset: int
    recall_handle: str
    pending: PendingWrite | None


ONCE_IDS = 10_000
"""Remembered ids of messages with TRIMQ_ONCE if no others are remembered; older ones are found by the key index."""


class SentIds:
    """`limit`: number of remembered ids; 0: only those of messages with TRIMQ_ONCE are remembered."""

    def __init__(self, limit: int) -> None:
        self.limit = limit or ONCE_IDS
        self.is_on = limit > 0
        self._sent: OrderedDict[tuple[str, str], SendResult] = OrderedDict()

    def find(self, topic: str, unique: str) -> SendResult | None:
        """Returns the result of an earlier send, unless that was refused."""
        found = self._sent.get((topic, unique))
        if found is not None and found.pending is not None and found.pending.refusal is not None:
            del self._sent[topic, unique]
            return None
        return found

    def remember(self, topic: str, unique: str, sent: SendResult) -> None:
        self._sent[topic, unique] = sent
        while len(self._sent) > self.limit:
            self._sent.popitem(last=False)

    def forget_topic(self, topic: str) -> None:
        """Forgets the ids of a deleted topic, so that its messages can be sent again."""
        for key in [key for key in self._sent if key[0] == topic]:
            del self._sent[key]
