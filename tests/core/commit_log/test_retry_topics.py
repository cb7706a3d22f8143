"""Retry topics: the search for a message that was returned before a crash is bounded."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from trimq.core.commit_log.retry_topics import _MAX_SEARCHED, RetryTopics
from trimq.formats.rocketmq_unit.properties import UNIQUE_KEY
from trimq.formats.rocketmq_unit.retries import pop_retry_topic
from trimq.model import TopicName

TOPIC: Any = SimpleNamespace(name=TopicName("", "t"))


class SameIds:
    """The key index of a topic with many messages of one id, newest first. `fitting`: the place of the one that was
    returned."""

    def __init__(self, count: int, fitting: int) -> None:
        self._count = count
        self._fitting = fitting
        self.read = 0

    def find(self, topic: str, key: str, begin_ms: int, end_ms: int) -> Iterator[Any]:
        assert (topic, key) == (pop_retry_topic("g", "t"), "same")
        for number in range(self._count):
            self.read += 1
            yield SimpleNamespace(reconsume_times=1 if number == self._fitting else 0)


@pytest.mark.parametrize(("fitting", "is_found"), [(0, True), (_MAX_SEARCHED - 1, True), (11_999, False)])
def test_the_search_among_many_messages_of_one_id_is_bounded(fitting: int, is_found: bool) -> None:
    index = SameIds(12_000, fitting)
    topics: Any = SimpleNamespace(find=lambda name: TOPIC)
    unused: Any = None
    retry_topics = RetryTopics(topics, unused, index.find, unused, unused)
    unit: Any = SimpleNamespace(properties=f"{UNIQUE_KEY}\x01same\x02".encode(), reconsume_times=0)
    assert retry_topics.was_already_stored("g", TOPIC, unit, 0, is_dead=False) is is_found
    assert index.read <= _MAX_SEARCHED
