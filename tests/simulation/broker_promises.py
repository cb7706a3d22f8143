"""Expected state of the broker, from its replies to clients: topics that must or must not exist, and the cursor of each
group."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from simulated_trace import SimulationFailure
from stream_promises import StreamPromises


class Creation(NamedTuple):
    """A requested topic."""

    name: str
    streams: int
    settings: tuple[tuple[str, str], ...]


class FoundTopic(NamedTuple):
    """A topic found by a recovery."""

    id: bytes
    creation: Creation


class TopicPromises:
    def __init__(self, name: str, streams: int) -> None:
        self.name = name
        self.streams = [StreamPromises(f"{name}/{number}") for number in range(streams)]
        self.must_stay = False  # acknowledged, or found by a recovery
        self.deletions = 0  # requested, and not refused
        self.is_gone = False
        self.was_gone = False  # already when the broker started


class CursorPromises:
    """The cursor of one group in one stream: the last acknowledged one, or one with an unknown outcome."""

    def __init__(self) -> None:
        self._acknowledged: int | None = None
        self._unknown: Counter[int] = Counter()
        self._earlier: set[int | None] = set()
        self._ever: set[int | None] = {None}

    def asked(self, offset: int) -> None:
        self._unknown[offset] += 1
        self._ever.add(offset)

    def acknowledged(self, offset: int) -> None:
        self._earlier.add(self._acknowledged)
        self._acknowledged = offset

    def refused(self, offset: int) -> None:
        self._unknown[offset] -= 1

    def is_legal(self, offset: int | None) -> bool:
        return offset == self._acknowledged or (offset is not None and self._unknown[offset] > 0)

    def recovered(self, offset: int | None, may_lose: bool) -> bool:
        is_legal = self.is_legal(offset) or (may_lose and offset in self._earlier)
        self._settle(offset)
        return is_legal

    def recovered_damaged(self, offset: int | None) -> bool:
        """After flipped bits, accepts any offset that was ever committed."""
        self._settle(offset)
        return offset in self._ever

    def _settle(self, offset: int | None) -> None:
        self._acknowledged = offset
        self._unknown.clear()
        self._earlier.clear()


class BrokerPromises:
    def __init__(self) -> None:
        self.topics: dict[bytes, TopicPromises] = {}
        self._creations: Counter[Creation] = Counter()
        self._names: set[str] = set()
        self._cursors: dict[tuple[str, bytes, int], CursorPromises] = {}

    # -- topics

    def create_asked(self, creation: Creation) -> None:
        self._creations[creation] += 1
        self._names.add(creation.name)

    def create_refused(self, creation: Creation) -> None:
        self._creations[creation] -= 1

    def created(self, id: bytes, creation: Creation) -> None:
        topic = self.topic(id, creation.name, creation.streams)
        if topic.is_gone:
            return  # deleted by another client before its creation was confirmed
        topic.must_stay = True

    def topic(self, id: bytes, name: str, streams: int) -> TopicPromises:
        found = self.topics.get(id)
        if found is None:
            found = self.topics[id] = TopicPromises(name, streams)
        return found

    def gone_topics(self) -> set[bytes]:
        return {id for id, topic in self.topics.items() if topic.is_gone}

    def listed(self, found: Sequence[tuple[str, bytes, int]], gone_before: set[bytes]) -> None:
        """A client got this list; it was requested after the topics of `gone_before` were deleted."""
        for name, id, streams in found:
            if name not in self._names:
                raise SimulationFailure(f"topic {name} is listed, but was never created")
            if id in gone_before:
                raise SimulationFailure(f"topic {name} is listed after its deletion was acknowledged")
            if len(self.topic(id, name, streams).streams) != streams:
                raise SimulationFailure(f"topic {name} is listed with {streams} streams")

    def delete_asked(self, id: bytes) -> None:
        self.topics[id].deletions += 1

    def delete_refused(self, id: bytes) -> None:
        self.topics[id].deletions -= 1

    def deleted(self, id: bytes) -> None:
        self.topics[id].is_gone = True

    def acknowledged(self, id: bytes) -> None:
        """A record of this topic was acknowledged, so the topic must exist."""
        self.topics[id].must_stay = True

    # -- cursors

    def cursor(self, group: str, topic: bytes, stream: int) -> CursorPromises:
        return self._cursors.setdefault((group, topic, stream), CursorPromises())

    # -- recovery

    def check_topics(self, found: Sequence[FoundTopic], may_lose: bool) -> None:
        """Checks that a recovery found exactly these topics."""
        there = {topic.id: topic.creation for topic in found}
        for id, topic in self.topics.items():
            if id in there:
                self._check_found(topic, may_lose)
            else:
                self._check_missing(topic, may_lose)
        for id, creation in there.items():
            if id not in self.topics and self._creations[creation] <= 0:
                raise SimulationFailure(f"recovery found topic {creation}, which was never created like that")
            topic = self.topic(id, creation.name, creation.streams)
            if len(topic.streams) != creation.streams:
                raise SimulationFailure(f"recovery found topic {creation.name} with {creation.streams} streams")
            topic.must_stay = True
            topic.deletions = 0
        self._creations.clear()

    def relearn_topics(self, found: Sequence[FoundTopic]) -> set[bytes]:
        """Adopts the topics found by a recovery after damage. Returns those with unknown state."""
        unsure = set()
        there = {topic.id: topic.creation for topic in found}
        for id, topic in self.topics.items():
            if id not in there:
                topic.is_gone = True
        for id, creation in there.items():
            known = self.topics.get(id)
            if known is None or known.is_gone or len(known.streams) != creation.streams:
                self.topics[id] = TopicPromises(creation.name, creation.streams)
                unsure.add(id)
        self._creations.clear()
        return unsure

    def check_damaged_cursors(self, found: Mapping[tuple[str, bytes, int], int]) -> None:
        for key, cursor in self._cursors.items():
            if not cursor.recovered_damaged(found.get(key)):
                raise SimulationFailure(f"recovery found {key[0]} at {found.get(key)}, which was never committed")

    def _check_found(self, topic: TopicPromises, may_lose: bool) -> None:
        if topic.is_gone and not (may_lose and not topic.was_gone):
            raise SimulationFailure(f"topic {topic.name} exists after its deletion was acknowledged")
        topic.is_gone = False

    def _check_missing(self, topic: TopicPromises, may_lose: bool) -> None:
        if topic.must_stay and not topic.is_gone and not topic.deletions and not may_lose:
            raise SimulationFailure(f"topic {topic.name} is lost")
        topic.is_gone = topic.was_gone = True

    def check_cursors(self, found: Mapping[tuple[str, bytes, int], int], may_lose: bool) -> None:
        for key in found:
            if key[1] not in self.topics or self.topics[key[1]].is_gone:
                raise SimulationFailure(f"a cursor of {key[0]} is left of a deleted topic")
        for key, cursor in self._cursors.items():
            if not self.topics[key[1]].is_gone and not cursor.recovered(found.get(key), may_lose):
                name = f"{self.topics[key[1]].name}/{key[2]}"
                raise SimulationFailure(f"recovery found {key[0]} at {found.get(key)} of {name}, never committed there")
