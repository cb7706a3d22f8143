"""Places of stored files that were found damaged since the start. Each is told once, however often it is read."""

from __future__ import annotations

import logging

from trimq.errors import DamagedSegment

log = logging.getLogger(__name__)

# So many are remembered: a disk that has more is told of already.
_PLACES = 10_000


class DamageReports:
    def __init__(self) -> None:
        self._places: set[tuple[str, int]] = set()

    def __len__(self) -> int:
        """In how many places."""
        return len(self._places)

    def found(self, damage: DamagedSegment, remedy: str) -> None:
        """A reader came to this place, which is not served."""
        place = damage.file, damage.position
        if place not in self._places and len(self._places) < _PLACES:
            self._places.add(place)
            log.error("%s, which is not served: stop the broker, then %s", damage, remedy)
