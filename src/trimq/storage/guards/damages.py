"""Records positions of damaged stored data found since the start. Logs each once, however often it is read."""

from __future__ import annotations

import logging

from trimq.errors import DamagedSegment

log = logging.getLogger(__name__)

# Upper bound: a disk with more damage is reported well enough.
_PLACES = 10_000


class DamageReports:
    def __init__(self) -> None:
        self._places: set[tuple[str, int]] = set()

    def __len__(self) -> int:
        """Number of damaged positions."""
        return len(self._places)

    def found(self, damage: DamagedSegment, remedy: str) -> None:
        """Called when a read hits this damage and fails."""
        place = damage.file, damage.position
        if place not in self._places and len(self._places) < _PLACES:
            self._places.add(place)
            log.error("%s; reads of it fail. Stop the broker, then %s", damage, remedy)
