"""Enters the keys of appended and recovered units into the key index. Knows properties and hashes, never files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trimq.formats.rocketmq_unit.batch_encoder import BatchMessage, UnitPosition
from trimq.formats.rocketmq_unit.properties import KEYS, UNIQUE_KEY, find_property, java_hash, split_keys
from trimq.formats.rocketmq_unit.unit import TRANSACTION_BITS, TRANSACTION_ROLLBACK
from trimq.storage.commit_log.key_index import KeyIndex


class KeyWriter:
    def __init__(self, index: KeyIndex) -> None:
        self._index = index
        self._topic_hashes: dict[str, int] = {}

    def topic_hash(self, topic: str) -> int:
        """Returns the hash prefix shared by all keys of the topic."""
        found = self._topic_hashes.get(topic)
        if found is None:
            found = self._topic_hashes[topic] = java_hash(f"{topic}#")
        return found

    def add(self, topic: str, sys_flag: int, properties: bytes, position: int, store_ms: int) -> None:
        """Adds the keys named in the properties of a unit."""
        if sys_flag & TRANSACTION_BITS == TRANSACTION_ROLLBACK:
            return
        topic_hash = self.topic_hash(topic)
        unique = find_property(properties, UNIQUE_KEY)
        if unique is not None:
            self._index.add(topic_hash, unique, position, store_ms)
        if b"KEYS\x01" in properties and (keys := find_property(properties, KEYS)) is not None:
            for key in split_keys(keys):
                self._index.add(topic_hash, key, position, store_ms)

    def add_batch(
        self,
        run: Sequence[BatchMessage],
        places: Sequence[UnitPosition],
        store_ms: int,
        unique: Sequence[str],
        more: Mapping[int, str],
    ) -> None:
        """Adds the unique keys of the messages that have a place. `more` holds further keys by message number."""
        placed = zip(run, unique, places, strict=False)
        self._index.add_all([(fresh[0].topic_hash, key, place[1], store_ms) for fresh, key, place in placed])
        for number, keys in more.items():
            if number < len(places):
                for key in split_keys(keys):
                    self._index.add(run[number][0].topic_hash, key, places[number][1], store_ms)
