"""Queue assignment to the members of a group, and the choice between pull and POP."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from protocols.rocketmq.handlers.test_pop import made
from protocols.rocketmq.rocketmq_desk import Desk, Peer

from trimq.protocols.rocketmq.clients.sticky_assignments import StickyAssignments
from trimq.protocols.rocketmq.wire.lenient_json import read_json

QUERY, SET, ALL = 400, 401, 402


def joined(desk: Desk, *names: str) -> list[Peer]:
    peers = [desk.connect() for _ in names]
    for peer, name in zip(peers, names, strict=True):
        peer.heartbeat(name, "g", "t")
    return peers


def asked(desk: Desk, client: str, **changes: Any) -> list[tuple[str, int]]:
    given = {"topic": "t", "consumerGroup": "g", "clientId": client, "strategyName": "AVG"}
    answer = desk.broker.ask(QUERY, body={**given, "messageModel": "CLUSTERING", **changes})
    assert answer.code == 0
    rows = read_json(answer.body)["messageQueueAssignments"]
    return [(row["mode"], row["messageQueue"]["queueId"]) for row in rows]


def set_mode(desk: Desk, mode: str = "POP", **changes: Any) -> int:
    return desk.broker.ask(SET, body={"topic": "t", "consumerGroup": "g", "mode": mode, **changes}).code


@pytest.mark.parametrize(("strategy", "shares"), [("AVG", [[0, 1, 2], [3, 4]]), ("AVG_BY_CIRCLE", [[0, 2, 4], [1, 3]])])
def test_queues_are_divided_as_clients_divide_them(strategy: str, shares: list[list[int]]) -> None:
    desk = made(5)
    joined(desk, "b", "a")
    for client, numbers in zip("ab", shares, strict=True):
        assert asked(desk, client, strategyName=strategy) == [("PULL", number) for number in numbers]
    assert asked(desk, "stranger", strategyName=strategy) == []
    assert asked(desk, "a", messageModel="BROADCASTING") == [("PULL", number) for number in range(5)]


@pytest.mark.parametrize("share", [0, -1])
def test_a_group_that_pops_has_all_queues_open_to_each_also_after_a_restart(share: int) -> None:
    desk = made(4)
    assert set_mode(desk, popShareQueueNum=share) == 0
    desk = desk.restart()
    joined(desk, "a", "b")
    assert asked(desk, "a") == asked(desk, "b") == [("POP", -1)]
    table = read_json(desk.broker.ask(ALL).body)["messageRequestModeMap"]
    assert table == {"t": {"g": {"consumerGroup": "g", "mode": "POP", "popShareQueueNum": share, "topic": "t"}}}
    assert set_mode(desk, "PULL") == 0
    assert asked(desk, "a") == [("PULL", 0), ("PULL", 1)]


def test_neighbours_share_the_configured_number_of_queues() -> None:
    desk = made(4)
    joined(desk, *"abcd")
    set_mode(desk, popShareQueueNum=1)
    assert asked(desk, "a") == [("POP", 0), ("POP", 1)]
    assert asked(desk, "d") == [("POP", 3), ("POP", 0)]
    few = made(2)
    joined(few, *"abcd")
    set_mode(few, popShareQueueNum=1)
    assert [asked(few, client) for client in "abcd"] == [[("POP", 0)], [("POP", 1)], [("POP", 0)], [("POP", 1)]]


@pytest.mark.parametrize(
    "changes",
    [{"mode": "PUSH"}, {"popShareQueueNum": "x"}, {"popShareQueueNum": -2}, {"topic": ""}, {"topic": "%RETRY%g"}],
)
def test_a_mode_that_is_none_is_refused(changes: dict[str, Any]) -> None:
    desk = made(1)
    assert set_mode(desk, **{"mode": "POP", **changes}) in (16, 29)


@pytest.mark.parametrize("strategy", ["BY_MOON", "", None])
@pytest.mark.parametrize("mode", ["POP", "PULL"])
def test_a_strategy_that_is_not_known_gives_no_list_so_that_clients_keep_their_queues(
    strategy: str | None, mode: str
) -> None:
    desk = made(1)
    joined(desk, "a")
    set_mode(desk, mode)
    body = {"topic": "t", "consumerGroup": "g", "clientId": "a", "strategyName": strategy}
    answer = desk.broker.ask(QUERY, body=body)
    assert (answer.code, read_json(answer.body)) == (0, {})


def test_without_a_topic_or_members_there_is_no_list_so_that_clients_keep_their_queues() -> None:
    desk = made(4)
    question = {"topic": "t", "consumerGroup": "g", "clientId": "c", "strategyName": "AVG"}
    assert read_json(desk.broker.ask(400, body=question).body) == {}
    assert read_json(desk.broker.ask(400, body={**question, "topic": "none"}).body) == {}
    desk.broker.heartbeat("other", "g", "t")
    assert read_json(desk.broker.ask(400, body=question).body) == {"messageQueueAssignments": []}


def test_a_mode_is_set_only_for_a_topic_that_exists() -> None:
    desk = made()
    assert set_mode(desk, topic="none") == 17
    assert set_mode(desk) == 0


def shares(desk: Desk, *names: str) -> list[list[int]]:
    return [[number for _, number in asked(desk, name, strategyName="STICKY")] for name in names]


def test_sticky_members_keep_their_queues_when_another_leaves() -> None:
    desk = made(6)
    _, leaver, _ = joined(desk, "c1", "c2", "c3")
    first, left, third = shares(desk, "c1", "c2", "c3")
    assert [len(share) for share in (first, left, third)] == [2, 2, 2]
    assert sorted(first + left + third) == list(range(6))
    leaver.ask(35, {"clientID": "c2", "consumerGroup": "g"})
    one, three = shares(desk, "c1", "c3")
    assert set(first) < set(one)
    assert set(third) < set(three)
    assert (len(one), len(three), shares(desk, "c2")) == (3, 3, [[]])
    joined(desk, "c4")
    one_now, three_now, four = shares(desk, "c1", "c3", "c4")
    assert set(one_now) < set(one)
    assert set(three_now) < set(three)
    assert sorted(one_now + three_now + four) == list(range(6))


def test_sticky_groups_without_members_are_forgotten() -> None:
    sticky = StickyAssignments(limit=1)
    topic, other = UUID(int=1), UUID(int=2)
    assert sticky.queues_of("g", topic, ["a", "b"], 2, "a") == [0]
    assert sticky.queues_of("g", topic, ["b"], 2, "b") == [0, 1]
    assert sticky.queues_of("g", other, ["a"], 1, "a") == [0]  # takes the place of the first
    assert sticky.queues_of("g", topic, [], 2, "a") == []
