"""Which messages of a stream a group takes out next: those that came back in order, then what is new and wanted. What
is too old is passed over; of what came back in order it is settled."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from trimq.core.commit_log.stream import MessageQueue, QueueEntry
from trimq.core.pop.in_flight import InFlightQueue
from trimq.errors import Refusal

if TYPE_CHECKING:
    from trimq.core.pop.receipts import PopRequest

MAX_SCANNED = 4000  # messages of a queue that are looked at for one request

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
    """Moves on behind the last that was looked at. One that cannot be read now ends it: what was chosen before goes
    out, or nobody would ever get it."""
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
            # After a reset, what is out already may lie ahead.
            is_chosen = entry.offset not in queue.in_flight and stream.matches_filter(entry, pop_request.message_filter)
        except Refusal:
            if chosen:
                break
            # Damaged: it goes out alone, and is told of when it is read. Else the group would never come past it.
            is_chosen, max_count = True, 0
        if is_chosen:
            chosen.append(entry)
            room -= entry.size
        queue.next_offset = entry.offset + 1


def select_same_again(queue: InFlightQueue, stream: MessageQueue, pop_request: PopRequest) -> list[QueueEntry]:
    """In order, who asks again under the same id gets the same again."""
    if not pop_request.attempt_id or pop_request.attempt_id != queue.attempt_id:
        return []
    return [entry for offset in queue.in_flight_offsets for entry in _fresh(stream, offset)]


def _fresh(stream: MessageQueue, offset: int) -> list[QueueEntry]:
    return [
        entry for entry in stream.entries(offset, 1) if entry.offset == offset and stream.matches_filter(entry, None)
    ]
