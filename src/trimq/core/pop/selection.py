"""Selects the messages of a queue that a group gets next: first those returned in order, then new ones that match the
filter. Expired messages are skipped; expired messages returned in order are acknowledged."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from trimq.core.commit_log.stream import MessageQueue, QueueEntry
from trimq.core.pop.in_flight import InFlightQueue
from trimq.errors import Refusal

if TYPE_CHECKING:
    from trimq.core.pop.receipts import PopRequest

MAX_SCANNED = 4000  # messages of a queue scanned for one request

AckExpired = Callable[[InFlightQueue, int], object]


def select_messages(
    queue: InFlightQueue,
    stream: MessageQueue,
    pop_request: PopRequest,
    max_count: int,
    room: int,
    in_flight_limit: int,
    ack: AckExpired,
) -> list[QueueEntry]:
    """Selects messages and advances `next_offset` behind the last one scanned. An unreadable message ends the
    selection: messages already selected are still delivered, otherwise no consumer would ever get them."""
    if max_count <= 0 or room <= 0:
        return []
    chosen: list[QueueEntry] = []
    try:
        for offset in sorted(queue.returned):
            if len(chosen) >= max_count:
                break
            found = _fresh(stream, offset)
            chosen += found
            if not found:
                ack(queue, offset)
        max_count = min(max_count, in_flight_limit - len(queue.in_flight) + len(chosen))
        _choose_new(queue, stream, pop_request, max_count, room, chosen)
    except (Refusal, OSError):
        if not chosen:
            raise
    return chosen


def _choose_new(
    queue: InFlightQueue,
    stream: MessageQueue,
    pop_request: PopRequest,
    max_count: int,
    room: int,
    chosen: list[QueueEntry],
) -> None:
    for entry in stream.entries(queue.next_offset, MAX_SCANNED):
        if len(chosen) >= max_count or (chosen and room < entry.size):
            break
        try:
            # After an offset reset, messages in flight may be ahead of `next_offset`.
            is_chosen = entry.offset not in queue.in_flight and stream.matches_filter(entry, pop_request.message_filter)
        except Refusal:
            if chosen:
                break
            # Damaged: selected alone; the read reports the damage. Otherwise the group would be stuck at this offset.
            is_chosen, max_count = True, 0
        if is_chosen:
            chosen.append(entry)
            room -= entry.size
        queue.next_offset = entry.offset + 1


def select_same_again(queue: InFlightQueue, stream: MessageQueue, pop_request: PopRequest) -> list[QueueEntry]:
    """Returns the in-flight messages again to an ordered request that repeats its attempt id."""
    if not pop_request.attempt_id or pop_request.attempt_id != queue.attempt_id:
        return []
    return [entry for offset in queue.in_flight_offsets for entry in _fresh(stream, offset)]


def _fresh(stream: MessageQueue, offset: int) -> list[QueueEntry]:
    return [
        entry for entry in stream.entries(offset, 1) if entry.offset == offset and stream.matches_filter(entry, None)
    ]
