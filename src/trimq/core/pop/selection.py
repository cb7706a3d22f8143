"""Which messages of a stream a group takes out next: those that came back in order, then what is new and wanted. What
is too old is passed over; of what came back in order it is settled."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from trimq.core.commit_log.stream import Entry, SharedStream
from trimq.core.pop.in_flight import GroupQueue
from trimq.errors import Refusal

if TYPE_CHECKING:
    from trimq.core.pop.receipts import Wish

SCANNED = 4000  # messages of a queue that are looked at for one request

Settle = Callable[[GroupQueue, int], object]


def choose(
    queue: GroupQueue, stream: SharedStream, wish: Wish, max_count: int, room: int, out_limit: int, settle: Settle
) -> list[Entry]:
    """Moves on behind the last that was looked at. One that cannot be read now ends it: what was chosen before goes
    out, or nobody would ever get it."""
    if max_count <= 0 or room <= 0:
        return []
    chosen: list[Entry] = []
    try:
        for offset in sorted(queue.back):
            if len(chosen) >= max_count:
                break
            found = _fresh(stream, offset)
            chosen += found
            if not found:
                settle(queue, offset)
        max_count = min(max_count, out_limit - len(queue.taken) + len(chosen))
        _choose_new(queue, stream, wish, max_count, room, chosen)
    except (Refusal, OSError):
        if not chosen:
            raise
    return chosen


def _choose_new(
    queue: GroupQueue, stream: SharedStream, wish: Wish, max_count: int, room: int, chosen: list[Entry]
) -> None:
    for entry in stream.entries(queue.next_offset, SCANNED):
        if len(chosen) >= max_count or (chosen and room < entry.size):
            break
        try:
            # After a reset, what is out already may lie ahead.
            is_chosen = entry.offset not in queue.taken and stream.is_wanted(entry, wish.interest)
        except Refusal:
            if chosen:
                break
            # Damaged: it goes out alone, and is told of when it is read. Else the group would never come past it.
            is_chosen, max_count = True, 0
        if is_chosen:
            chosen.append(entry)
            room -= entry.size
        queue.next_offset = entry.offset + 1


def held_again(queue: GroupQueue, stream: SharedStream, wish: Wish) -> list[Entry]:
    """In order, who asks again under the same id gets the same again."""
    if not wish.attempt_id or wish.attempt_id != queue.attempt_id:
        return []
    return [entry for offset in queue.held for entry in _fresh(stream, offset)]


def _fresh(stream: SharedStream, offset: int) -> list[Entry]:
    return [entry for entry in stream.entries(offset, 1) if entry.offset == offset and stream.is_wanted(entry, None)]
