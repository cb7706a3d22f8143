"""Lanes: one topic for each priority, and the shares of the handlers' work that they get."""

from __future__ import annotations

from dataclasses import dataclass

from trimq.client.consuming.filters import ALL, Filter

_RATIO = 4
MOST_LEVELS = 8


@dataclass(frozen=True, slots=True)
class Lanes:
    """Priorities of a topic: level 0, the most urgent, is the topic itself; level n is `<topic>_p<n>`. A consumer with
    `lanes` hands out urgent messages first. Of work that waits in all lanes each gets four times as much as the next
    one, so that none starves."""

    topic: str
    levels: int = 3

    def __post_init__(self) -> None:
        if not 2 <= self.levels <= MOST_LEVELS:
            raise ValueError(f"levels must be 2 to {MOST_LEVELS}, not {self.levels}")

    def lane(self, level: int) -> str:
        """Returns the topic of a level, to send to."""
        if not 0 <= level < self.levels:
            raise ValueError(f"{self.topic} has the levels 0 to {self.levels - 1}, not {level}")
        return f"{self.topic}_p{level}" if level else self.topic

    @property
    def topics(self) -> tuple[str, ...]:
        return tuple(map(self.lane, range(self.levels)))

    @property
    def shares(self) -> tuple[int, ...]:
        """Messages of each lane in one round, if all of them wait."""
        return tuple(_RATIO ** (self.levels - 1 - level) for level in range(self.levels))

    def level_of(self, topic: str) -> int:
        """Returns the level of a topic. Others, such as the retry topic of the group, are urgent."""
        topics = self.topics
        return topics.index(topic) if topic in topics else 0

    def subscriptions(self, wanted: Filter = ALL) -> dict[str, Filter]:
        """Returns the subscriptions of a consumer of all lanes, each with this filter."""
        return dict.fromkeys(self.topics, wanted)
