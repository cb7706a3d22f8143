"""Receipts of popped messages, as RocketMQ writes them:

start popTime invisibleTime reviveQueue retry brokerName queueId offset"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from trimq.formats.rocketmq_unit.properties import find_property
from trimq.formats.rocketmq_unit.retries import RECEIPT, RETRY_PREFIX, pop_retry_topic
from trimq.formats.rocketmq_unit.unit import Unit

_ORIGINAL, _RETRY, _RETRY_OF_5_3 = "0", "1", "2"


class Receipt(NamedTuple):
    """`mark` tells whether the message was popped from its topic or from the retry topic of the group."""

    start: str
    popped_ms: str
    invisible_ms: str
    revive_queue: str
    mark: str
    broker: str
    queue: str
    offset: str

    @property
    def text(self) -> str:
        return " ".join(self)

    def stored_topic(self, topic: str, group: str) -> str:
        """Returns the topic that the message was popped from."""
        if self.mark == _RETRY:
            return pop_retry_topic(group, topic)
        if self.mark == _RETRY_OF_5_3:
            return f"{RETRY_PREFIX}{group}+{topic}"
        return topic

    def renewed(self, fields: Mapping[str, str]) -> Receipt:
        """Returns the receipt that is valid after a change of the invisible time, from the fields of the response.
        Apache RocketMQ keeps the message apart from then on, as if it had been popped alone."""
        return self._replace(
            start=self.offset,
            popped_ms=fields["popTime"],
            invisible_ms=fields["invisibleTime"],
            revive_queue=fields["reviveQid"],
        )


def read_receipt(text: str) -> Receipt:
    """Raises ValueError if the text is no receipt."""
    words = text.split(" ")
    if len(words) < len(Receipt._fields):
        raise ValueError(f"not a receipt: {text[:100]!r}")
    return Receipt(*words[: len(Receipt._fields)])


def read_starts(text: str) -> dict[str, str]:
    """Reads `startOffsetInfo`: the first offset of each queue of the topic itself."""
    found: dict[str, str] = {}
    for entry in filter(None, text.split(";")):
        mark, queue, offset = entry.split(" ")
        if mark == _ORIGINAL:
            found[queue] = offset
    return found


def receipt_of(unit: Unit, broker: str, fields: Mapping[str, str], starts: Mapping[str, str]) -> Receipt:
    """Returns the receipt of a popped message: a redelivered one carries its own. Raises ValueError or KeyError for a
    response that has none."""
    own = find_property(unit.properties, RECEIPT)
    if own is not None:
        return read_receipt(own)
    queue, offset = str(unit.queue_id), str(unit.queue_offset)
    return Receipt(
        starts.get(queue, offset), fields["popTime"], fields["invisibleTime"], fields["reviveQid"], _ORIGINAL, broker,
        queue, offset,
    )  # fmt: skip
