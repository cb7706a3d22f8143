"""Lowest sequence number that each producer has sent to a stream whose batches it has not accepted yet. While a batch
is refused because of its transaction, later ones must not be accepted: the first one could never follow them."""

from __future__ import annotations

from typing import NamedTuple

from trimq.model import StreamId

_MOST = 10_000


class _Entry(NamedTuple):
    epoch: int
    sequence: int
    starts_at_zero: bool


class LowestSequences:
    """Bounded: forgets the oldest entry, since clients can invent any number of producer ids."""

    def __init__(self, most: int = _MOST) -> None:
        self._most = most
        self._entries: dict[tuple[int, StreamId], _Entry] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def note(self, producer_id: int, stream: StreamId, epoch: int, sequence: int, starts_at_zero: bool) -> None:
        """`starts_at_zero`: the first sequence number that the stream accepts of the producer is 0."""
        key = producer_id, stream
        known = self._entries.get(key)
        if known is None:
            if len(self._entries) >= self._most:
                del self._entries[next(iter(self._entries))]
            self._entries[key] = _Entry(epoch, sequence, starts_at_zero)
        elif epoch > known.epoch or (epoch == known.epoch and sequence < known.sequence):
            self._entries[key] = known._replace(epoch=epoch, sequence=sequence)

    def highest_allowed(self, producer_id: int, stream: StreamId, is_known: bool) -> int | None:
        """Returns the highest sequence number that the stream may accept next, or None for any. `is_known`: the stream
        has accepted batches of the producer before."""
        entry = self._entries.get((producer_id, stream))
        if entry is None:
            return None
        return 0 if entry.starts_at_zero and not is_known else entry.sequence

    def end_transaction(self, producer_id: int, stream: StreamId, epoch: int) -> None:
        """Forgets the producer after the marker of this epoch, unless its next transaction has begun."""
        entry = self._entries.get((producer_id, stream))
        if entry is not None and not (entry.starts_at_zero and entry.epoch == epoch):
            del self._entries[producer_id, stream]

    def forget(self, producer_id: int, stream: StreamId) -> None:
        self._entries.pop((producer_id, stream), None)
