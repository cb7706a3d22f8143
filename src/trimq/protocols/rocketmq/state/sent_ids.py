"""Messages whose producer has sent them before under the same id: those that are remembered are not stored again, and
whoever repeats one hears where it is. Off unless asked for."""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

from trimq.protocols.rocketmq.wire.replies import PendingWrite


class SendResult(NamedTuple):
    """What the answer to a message says. `pending` is None for one that was on disk long ago."""

    id: str
    queue_id: int
    queue_offset: int
    recall_handle: str
    pending: PendingWrite | None


class SentIds:
    """`limit`: how many ids are remembered; 0: none."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._sent: OrderedDict[tuple[str, str], SendResult] = OrderedDict()

    @property
    def is_on(self) -> bool:
        return self._limit > 0

    def find(self, topic: str, unique: str) -> SendResult | None:
        """One that was refused counts as never sent."""
        found = self._sent.get((topic, unique))
        if found is not None and found.pending is not None and found.pending.refusal is not None:
            del self._sent[topic, unique]
            return None
        return found

    def remember(self, topic: str, unique: str, sent: SendResult) -> None:
        self._sent[topic, unique] = sent
        while len(self._sent) > self._limit:
            self._sent.popitem(last=False)

    def forget_topic(self, topic: str) -> None:
        """What was sent to it is gone, and may come again."""
        for key in [key for key in self._sent if key[0] == topic]:
            del self._sent[key]
