"""Attack t11: the cost of a scrape must not grow with the number of topics times that of groups."""

from __future__ import annotations

import urllib.request

import pytest
from loop_turns import measured_turns

from tools.rocketmq_wire import Wire
from trimq.testing import Broker

LONGEST_MS = 50
ATTEMPTS = 3
FEW = 60
MORE = 4


def scrape(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> tuple[float, float]:
    """Processor time of a scrape in milliseconds: of all turns of the loop, and of the longest one."""
    seen = []
    for _ in range(ATTEMPTS):
        with measured_turns(monkeypatch) as turns, urllib.request.urlopen(broker.http + "/metrics", timeout=60) as page:
            assert page.read()
        seen.append((sum(turns), max(turns)))
    return min(total for total, _ in seen), min(longest for _, longest in seen)


def make(broker: Broker, first: int, last: int) -> None:
    with Wire(broker.addresses["rocketmq_broker"]) as wire:
        for number in range(first, last):
            wire.create_topic(f"t{number}", 1)
            broker.create_group(f"g{number}")
            wire.send(f"t{number}", b"x")
            wire.commit_offset(f"g{number}", f"t{number}", 0, 1)


def test_four_times_as_many_topics_and_groups_cost_four_times_as_much(monkeypatch: pytest.MonkeyPatch) -> None:
    with Broker(limits_topics=10_000) as broker:
        make(broker, 0, FEW)
        scrape(broker, monkeypatch)  # what the first one imports
        few_ms, _ = scrape(broker, monkeypatch)
        make(broker, FEW, MORE * FEW)
        more_ms, longest_ms = scrape(broker, monkeypatch)
        print(f"{few_ms:.1f} ms, {more_ms:.1f} ms, at most {longest_ms:.1f} ms in a turn")
        assert more_ms < 2 * MORE * few_ms
        assert longest_ms < LONGEST_MS
