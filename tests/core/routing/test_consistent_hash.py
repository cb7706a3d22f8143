"""Consistent hashing of routing keys over weighted destinations."""

from __future__ import annotations

from collections import Counter

from trimq.core.routing.consistent_hash import HashRing

KEYS = [f"key {number}" for number in range(4000)]


def test_keys_are_distributed_by_weight() -> None:
    ring: HashRing[str] = HashRing()
    ring.add("one", 1, "one")
    ring.add("three", 3, "three")
    shares = Counter(ring.find(key) for key in KEYS)
    assert 0.6 < shares["three"] / len(KEYS) < 0.9


def test_keys_keep_their_destination_when_another_is_added_and_removed() -> None:
    ring: HashRing[str] = HashRing()
    for name in "abc":
        ring.add(name, 2, name)
    before = {key: ring.find(key) for key in KEYS}
    ring.add("d", 2, "d")
    moved = [key for key in KEYS if ring.find(key) != before[key]]
    assert moved
    assert {ring.find(key) for key in moved} == {"d"}
    ring.remove("d")
    assert {key: ring.find(key) for key in KEYS} == before


def test_an_empty_ring_has_no_destination() -> None:
    ring: HashRing[str] = HashRing()
    assert ring.find("a") is None
    ring.remove("never there")
