"""Text forms of POP receipts: the receipt itself (`extraInfo`, `POP_CK`), and the lists in a pop response from which
clients build receipts. Clients parse them, so the order of the fields is fixed:

    start popTime invisibleTime reviveQueue retry brokerName queueId offset [position]"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from trimq.core.pop.receipts import PoppedMessage, Receipt

_PLAIN, _RETURNED = "0", "1"  # the field `retry`: original topic, or retry topic of the group

POP_ORDER_REVIVE_QUEUE = 999
"""Revive queue in receipts of ordered consumption, as in Apache RocketMQ. TriMQ has no revive queues; receipts of
unordered consumption say 0."""

# Numbers as Java writes them; int() accepts other forms, too. The field `start` is ignored: clients may change it.
_NUMBER = "([0-9]{1,19})"
_is_receipt = re.compile(
    f"[^ ]* {_NUMBER} {_NUMBER} {_NUMBER} ([{_PLAIN}{_RETURNED}]) ([^ ]*) {_NUMBER} {_NUMBER}(?: {_NUMBER})?"
).fullmatch


class BadReceipt(ValueError):
    """The text is not a receipt."""


class ReceiptHandle(NamedTuple):
    """Parsed receipt: the message, its invisible time and the broker. `position` is the commit-log position of the
    message, if the text has one."""

    receipt: Receipt
    invisible_ms: int
    broker_name: str
    is_ordered: bool
    position: int | None = None


def write_receipt(
    receipt: Receipt, invisible_ms: int, broker_name: str, is_ordered: bool, start: int, position: int | None = None
) -> str:
    """`start` is the first offset of the same pop. Receipts over gRPC include `position`."""
    is_retry, number, offset, pop_time_ms = receipt
    queue, mark = POP_ORDER_REVIVE_QUEUE if is_ordered else 0, _RETURNED if is_retry else _PLAIN
    text = f"{start} {pop_time_ms} {invisible_ms} {queue} {mark} {broker_name} {number} {offset}"
    return text if position is None else f"{text} {position}"


def read_receipt(text: str) -> ReceiptHandle:
    """Raises BadReceipt if the text is not a receipt."""
    found = _is_receipt(text)
    if found is None:
        raise BadReceipt(f"not a receipt: {text[:100]!r}")
    taken, invisible, queue, mark, broker, number, offset, position = found.groups()
    receipt = Receipt(mark == _RETURNED, int(number), int(offset), int(taken))
    is_ordered = int(queue) == POP_ORDER_REVIVE_QUEUE
    return ReceiptHandle(receipt, int(invisible), broker, is_ordered, None if position is None else int(position))


def _mark(receipt: Receipt) -> str:
    return _RETURNED if receipt.is_retry else _PLAIN


# -- lists in a pop response


def first_offsets(messages: Iterable[PoppedMessage]) -> dict[tuple[bool, int], int]:
    """Returns the first offset of each queue, by (`is_retry`, queue id)."""
    found: dict[tuple[bool, int], int] = {}
    for popped in messages:
        receipt = popped.receipt
        key = (receipt.is_retry, receipt.number)
        found[key] = min(receipt.offset, found.get(key, receipt.offset))
    return found


def write_first_offsets(found: dict[tuple[bool, int], int]) -> str:
    return ";".join(f"{int(is_retry)} {number} {offset}" for (is_retry, number), offset in found.items())


def write_offsets(messages: Sequence[PoppedMessage]) -> str:
    queues: dict[str, list[str]] = {}
    for popped in messages:
        receipt = popped.receipt
        queues.setdefault(f"{_mark(receipt)} {receipt.number}", []).append(str(receipt.offset))
    return ";".join(f"{queue} {','.join(offsets)}" for queue, offsets in queues.items())


def write_order_counts(messages: Sequence[PoppedMessage]) -> str:
    """Earlier deliveries of ordered messages (`orderCountInfo`): one entry for each redelivered message, then, for old
    clients, the minimum of its queue."""
    queues: dict[str, list[PoppedMessage]] = {}
    for popped in messages:
        queues.setdefault(f"{_mark(popped.receipt)} {popped.receipt.number}", []).append(popped)
    found = []
    for queue, given in queues.items():
        mark, _, number = queue.partition(" ")
        found += [f"{mark} qo{number}%{each.receipt.offset} {each.tries}" for each in given if each.tries]
        found.append(f"{queue} {min(each.tries for each in given)}")
    return ";".join(found)
