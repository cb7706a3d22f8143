"""Offset resets of groups by an administrator."""

from __future__ import annotations

from typing import Any

import pytest
from protocols.rocketmq.rocketmq_desk import NOW_MS, Desk, bodies_of

from trimq.core.security.access import Right
from trimq.model import DEFAULT_NAMESPACE
from trimq.protocols.rocketmq.wire.lenient_json import read_json


def desk_with(count: int = 4) -> Desk:
    desk = Desk()
    desk.broker.ask(17, {"topic": "t", "readQueueNums": 2, "writeQueueNums": 2, "perm": 6})
    for number in range(count):
        desk.broker.send("t", b"%d" % number)
        desk.advance(1000)
    desk.broker.ask(200, body={"groupName": "g"})
    commit(desk, 3)
    return desk


def commit(desk: Desk, offset: int, group: str = "g") -> str | None:
    fields = {"consumerGroup": group, "topic": "t", "queueId": 0, "commitOffset": offset}
    answer = desk.broker.ask(15, fields)
    assert answer.code == 0
    return answer.remark


def offset(desk: Desk, group: str = "g") -> str | None:
    fields = {"consumerGroup": group, "topic": "t", "queueId": 0, "setZeroIfNotFound": False}
    return desk.broker.ask(14, fields).fields.get("offset")


def reset(desk: Desk, **fields: Any) -> Any:
    answer = desk.broker.ask(222, {"topic": "t", "group": "g", "timestamp": 0, "isForce": True, **fields})
    if answer.code:
        return answer.code
    table = read_json(answer.body)["offsetTable"]
    return {read_json(key.encode())["queueId"]: found for key, found in table.items()}


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        ({}, {0: 0, 1: 0}),
        ({"timestamp": -1}, {0: 4, 1: 0}),
        ({"timestamp": NOW_MS + 1500}, {0: 2, 1: 0}),
        ({"queueId": 0, "offset": 1}, {0: 1}),
        ({"queueId": 1}, {1: 0}),
        ({"queueId": 0, "offset": 9}, 1),
        ({"queueId": 2}, 29),
        ({"topic": "none"}, 17),
        ({"timestamp": -1, "isForce": False}, {0: 4, 1: 0}),
        ({"timestamp": 0, "isForce": False}, {0: 0, 1: 0}),
        ({"group": "unknown"}, 26),
    ],
)
def test_where_a_group_goes_on(fields: dict[str, Any], wanted: object) -> None:
    assert reset(desk_with(), **fields) == wanted


def test_a_reset_of_an_unknown_group_writes_nothing() -> None:
    desk = desk_with()
    answer = desk.broker.ask(222, {"topic": "t", "group": "unknown", "timestamp": -1, "isForce": True})
    assert (answer.code, answer.remark) == (26, "Group unknown does not exist")
    assert offset(desk, "unknown") is None


@pytest.mark.parametrize(("configure", "read", "missing"), [("^g$", "^t$", "group g"), ("^t$", "^g$", "topic t")])
def test_a_pending_reset_is_not_told_to_a_client_that_may_not_commit(configure: str, read: str, missing: str) -> None:
    desk = desk_with()
    desk.broker.pull("t", 3)
    reset(desk, queueId=0, offset=1)
    access = desk.core.broker._access
    access.define_user("somebody", "secret", is_administrator=True)
    access.grant(Right("anonymous", DEFAULT_NAMESPACE, configure=configure, read=read))
    desk.runner.settle()
    fields = {"consumerGroup": "g", "topic": "t", "queueId": 0, "commitOffset": 4}
    answer = desk.broker.ask(15, fields)
    assert (answer.code, missing in (answer.remark or "")) == (16, True)


def test_members_get_the_reset_offset_with_their_next_pull() -> None:
    desk = desk_with()
    assert desk.broker.pull("t", 3).code == 0
    reset(desk, queueId=0, offset=1)
    assert commit(desk, 4) == "Offset has been previously reset"
    assert offset(desk) == "1"
    moved = desk.broker.pull("t", 3, sysFlag=5, commitOffset=4)
    assert (moved.code, moved.fields["nextBeginOffset"], moved.fields["maxOffset"]) == (21, "1", "4")
    assert offset(desk) == "1"
    assert bodies_of(desk.broker.pull("t", 1)) == [b"1", b"2", b"3"]
    assert commit(desk, 4) is None
    assert offset(desk) == "4"


def test_a_member_that_is_there_already_gets_the_reset_offset_once() -> None:
    desk = desk_with()
    reset(desk, queueId=0, offset=3)
    moved = desk.broker.pull("t", 3)
    assert (moved.code, moved.fields["nextBeginOffset"]) == (21, "3")
    assert bodies_of(desk.broker.pull("t", 3)) == [b"3"]


def test_where_a_group_goes_on_outlives_a_restart() -> None:
    desk = desk_with()
    reset(desk)
    assert offset(desk.restart()) == "0"


def test_a_group_or_a_topic_that_is_deleted_is_forgotten() -> None:
    desk = desk_with()
    reset(desk)
    desk.broker.ask(207, {"groupName": "g", "cleanOffset": True})
    assert bodies_of(desk.broker.pull("t", 2)) == [b"2", b"3"]


def test_one_group_goes_on_where_another_is() -> None:
    desk = desk_with()
    assert desk.broker.ask(314, {"srcGroup": "g", "destGroup": "h", "topic": "t", "offline": False}).code == 0
    assert desk.broker.ask(314, {"srcGroup": "g", "destGroup": "i"}).code == 0
    assert (offset(desk, "h"), offset(desk, "i")) == ("3", "3")
    assert desk.broker.ask(314, {"srcGroup": "none", "destGroup": "j"}).code == 0
    assert offset(desk, "j") is None
    assert desk.broker.ask(314, {"srcGroup": "g", "destGroup": "k", "topic": "none"}).code == 0
    assert offset(desk, "k") is None


def test_offsets_of_topics_that_the_source_group_does_not_subscribe_to_are_not_copied() -> None:
    desk = desk_with()
    desk.connect().heartbeat("c", "g", "other")
    assert desk.broker.ask(314, {"srcGroup": "g", "destGroup": "h", "topic": "t", "offline": False}).code == 0
    assert offset(desk, "h") is None
    assert desk.broker.ask(314, {"srcGroup": "g", "destGroup": "h", "topic": "t", "offline": True}).code == 0
    assert offset(desk, "h") == "3"


def test_the_slowest_of_all_groups() -> None:
    desk = desk_with()
    desk.broker.ask(200, body={"groupName": "slow"})
    commit(desk, 1, "slow")

    def correction(**fields: str) -> Any:
        return read_json(desk.broker.ask(308, {"topic": "t", **fields}).body)["correctionOffsets"]

    assert correction() == {"0": 1}
    assert correction(filterGroups="slow") == {"0": 3}
    assert correction(compareGroup="slow") == {"0": 1}
    assert correction(compareGroup="g") == {"0": 1}
    assert correction(compareGroup="slow", filterGroups="g") == {"0": 1}
    desk.broker.ask(15, {"consumerGroup": "slow", "topic": "t", "queueId": -1, "commitOffset": 2})
    assert desk.broker.ask(308, {"topic": "t"}).body == b'{"correctionOffsets":{-1:2,0:1}}'
    desk.broker.ask(15, {"consumerGroup": "slow", "topic": "t", "queueId": -1, "commitOffset": -1})
    commit(desk, -1, "slow")
    assert correction(compareGroup="g") == {"0": 3}
    refused = desk.broker.ask(308, {"topic": "t", "compareGroup": "slow", "filterGroups": "g"})
    assert (refused.code, "behind the first message of queue -1, only slow" in (refused.remark or "")) == (1, True)
    assert correction(topic="none") == {}
