"""Requests that concern thousands of objects are answered over several turns of the loop, whole."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from trimq.core.api.records import RecordsApi
from trimq.core.groups.group import NO_MEMBER, CursorChange
from trimq.model import SYSTEM, Layout, StreamId
from trimq.server.http.definitions import DefinitionsApi
from trimq.server.http.groups import GroupsApi
from trimq.server.http.queues import QueuesApi
from trimq.server.http.records import StreamsApi
from trimq.server.http.responses import DeferredResponse, HttpResponse
from trimq.server.http.slices import SliceRunner
from trimq.server.http.topics import TopicsApi
from trimq.testing import Broker

QUEUES, TOPICS = 600, 400


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        broker.on_loop(fill)
        yield broker


def fill(node: Any) -> None:
    core = node.core.broker
    for number in range(QUEUES):
        queue = core.queues.declare_queue(SYSTEM, f"q-{number:03}", True, False, False, {}, None).queue
        core.groups.commit(SYSTEM, "spark", NO_MEMBER, [CursorChange(StreamId(queue.id, 0), 0)])
        core.groups.commit(SYSTEM, f"g-{number:03}", NO_MEMBER, [CursorChange(StreamId(queue.id, 0), 0)])
    for number in range(TOPICS):
        core.topics.create(SYSTEM, f"t-{number:03}", Layout.PARTITION_LOG, 1, {})
    core.topics.create(SYSTEM, "wide", Layout.PARTITION_LOG, 300, {})


class SlowTime:
    """Each look at the clock takes a millisecond."""

    def __init__(self) -> None:
        self.ms = 0

    def now_ms(self) -> int:
        self.ms += 1
        return self.ms

    def call_at(self, due_ms: int, callback: Callable[[], None]) -> Any:
        raise NotImplementedError


def ask(broker: Broker, path: str, method: str = "GET", body: bytes = b"", meanwhile: Any = None) -> tuple[int, Any]:
    """Number of turns that it took, and the answer. `meanwhile` is called between the first two turns."""

    def run(node: Any) -> tuple[int, Any]:
        core = node.core.broker
        soon: list[Callable[[], None]] = []
        slices = SliceRunner(SlowTime(), soon.append)
        records_api = RecordsApi(core, None)
        others = [
            GroupsApi(core.groups, records_api, slices=slices),
            StreamsApi(records_api, slices=slices),
            QueuesApi(core, slices),
            DefinitionsApi(core, slices),
        ]
        found = TopicsApi(core, others, slices=slices).answer(SYSTEM, method, path, {}, body)
        responses = [found] if isinstance(found, HttpResponse) else []
        if isinstance(found, DeferredResponse):
            found.begin(responses.append)
        turns = 1
        while soon:
            if meanwhile is not None and turns == 1:
                meanwhile(node)
            soon.pop()()
            turns += 1
        (response,) = responses
        assert response.status < 300
        complete = b"".join([response.body, *map(bytes, response.parts)])
        assert len(complete) == response.length
        return turns, json.loads(complete or b"null")

    return broker.on_loop(run)


@pytest.mark.parametrize(
    ("path", "name", "rows"),
    [
        ("/api/queues", "queues", QUEUES),
        ("/api/streams", "topics", QUEUES + TOPICS + 1),
        ("/api/topics", "topics", TOPICS + 1),
        ("/api/topics/wide", "offsets", 300),
        ("/api/streams/wide", "streams", 300),
        ("/api/groups", "groups", QUEUES + 1),
        ("/api/groups/spark", "cursors", QUEUES),
        ("/api/definitions", "queues", QUEUES),
    ],
)
def test_a_long_list_takes_several_turns(broker: Broker, path: str, name: str, rows: int) -> None:
    turns, answer = ask(broker, path)
    assert len(answer[name]) == rows
    assert turns >= rows // 64 // 2


def test_topics_of_all_layouts_are_sorted_by_name(broker: Broker) -> None:
    _, answer = ask(broker, "/api/streams")
    names = [topic["name"] for topic in answer["topics"]]
    assert names == sorted(names)


@pytest.mark.parametrize(
    ("path", "name"), [("/api/queues", "queues"), ("/api/groups", "groups"), ("/api/topics", "topics")]
)
def test_objects_may_come_and_go_while_they_are_listed(path: str, name: str) -> None:
    def prepare(node: Any) -> None:
        core = node.core.broker
        for number in range(200):
            queue = core.queues.declare_queue(SYSTEM, f"old-{number}", True, False, False, {}, None).queue
            core.groups.commit(SYSTEM, f"old-{number}", NO_MEMBER, [CursorChange(StreamId(queue.id, 0), 0)])
            core.topics.create(SYSTEM, f"topic-{number}", Layout.PARTITION_LOG, 1, {})

    def change(node: Any) -> None:
        core = node.core.broker
        core.queues.declare_queue(SYSTEM, "new", True, False, False, {}, None)
        core.queues.delete_queue(SYSTEM, "old-199", False, False, None)
        core.topics.create(SYSTEM, "new-topic", Layout.PARTITION_LOG, 1, {})
        core.topics.delete(SYSTEM, core.topics.get(SYSTEM, "topic-199"))
        core.groups.delete(SYSTEM, "old-199")

    with Broker() as broker:
        broker.on_loop(prepare)
        _, answer = ask(broker, path, meanwhile=change)
        names = [row["name"] for row in answer[name]]
        assert len(names) == 199
        assert not any("199" in each for each in names)


def test_an_import_takes_several_turns() -> None:
    with Broker() as broker:
        body = json.dumps({"queues": [{"name": f"q-{number}"} for number in range(50)]}).encode()
        turns, _ = ask(broker, "/api/definitions", "POST", body)
        assert turns >= 20
        assert len(ask(broker, "/api/queues")[1]["queues"]) == 50
