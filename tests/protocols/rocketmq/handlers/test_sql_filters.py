"""SQL filters over properties: in a pull, from the heartbeat, and during a long poll."""

from __future__ import annotations

from typing import Any

import pytest
from protocols.rocketmq.rocketmq_desk import Desk, bodies_of

from trimq.wire.remoting import Command

SQL = {"expressionType": "SQL92"}


def desk_with(*values: int) -> Desk:
    desk = Desk()
    for value in values:
        desk.broker.send("t", b"%d" % value, properties=f"a\x01{value}\x02")
    return desk


def subscribe(desk: Desk, expression: str, version: int = 1) -> None:
    subscription = {"topic": "t", "subString": expression, "subVersion": version, **SQL}
    consumer = {"groupName": "g", "subscriptionDataSet": [subscription]}
    assert desk.broker.ask(34, body={"clientID": "c", "consumerDataSet": [consumer]}).code == 0


def check(desk: Desk, **subscription: Any) -> Command:
    body = {"clientId": "c", "group": "g", "subscriptionData": {"topic": "t", **subscription}}
    return desk.broker.ask(46, body=body)


def test_a_pull_returns_matching_messages_and_continues_behind_those_checked() -> None:
    answer = desk_with(1, 5, 2, 7, 1).broker.pull("t", subscription="a BETWEEN 5 AND 9 OR nope = 1", **SQL)
    assert (bodies_of(answer), answer.fields["nextBeginOffset"]) == ([b"5", b"7"], "5")


def test_where_nothing_matches_the_client_asks_again_behind_it() -> None:
    answer = desk_with(1, 2).broker.pull("t", subscription="a > 5", **SQL)
    assert (answer.code, answer.fields["nextBeginOffset"]) == (20, "2")


def test_an_invalid_expression_is_refused_and_nothing_delivered() -> None:
    answer = desk_with(1).broker.pull("t", subscription="a > > 5", **SQL)
    assert (answer.code, answer.body) == (23, b"")


def test_an_expression_beyond_the_limits_is_refused() -> None:
    desk = Desk(filter_bytes=20, filter_operators=3)
    desk.broker.send("t", properties="a\x015\x02")
    assert desk.broker.pull("t", subscription="a > 1 AND a < 9", **SQL).code == 0
    assert desk.broker.pull("t", subscription="NOT NOT NOT NOT a", **SQL).code == 23
    assert desk.broker.pull("t", subscription="a > 1 AND a < 900000", **SQL).code == 0
    assert desk.broker.pull("t", subscription="a > 1 AND a < 9000000", **SQL).code == 23


def test_the_expression_of_the_heartbeat_counts() -> None:
    desk = desk_with(1, 5)
    subscribe(desk, "a = 5")
    assert bodies_of(desk.broker.pull("t", sysFlag=0, subVersion=1)) == [b"5"]
    subscribe(desk, "a = = 5", version=2)
    assert desk.broker.pull("t", sysFlag=0, subVersion=2).code == 27


def test_it_is_shown_without_tags() -> None:
    desk = desk_with(1)
    subscribe(desk, "a = 5 || b")
    shown = desk.broker.ask(203, {"consumerGroup": "g"})
    assert b'"tagsSet":[]' in shown.body
    assert b'"expressionType":"SQL92"' in shown.body


def test_a_long_poll_is_woken_only_by_a_matching_message() -> None:
    desk = desk_with(1)
    fields = desk.broker.pull_fields("t", 1, subscription="a > 5", **SQL)
    reply = desk.broker.begin(11, {**fields, "sysFlag": 6, "suspendTimeoutMillis": 15_000})
    assert reply is not None
    other = desk.connect()
    other.send("t", b"small", properties="a\x012\x02")
    assert not desk.is_ready(reply)
    other.send("t", b"large", properties="a\x019\x02")
    assert bodies_of(desk.take(reply)) == [b"large"]


@pytest.mark.parametrize(
    ("subscription", "code"),
    [
        ({"subString": "a > 3", **SQL}, 0),
        ({"subString": "a > > 3", **SQL}, 23),
        ({"subString": "", **SQL}, 23),
        ({"subString": "A || B", "expressionType": "TAG"}, 0),
        ({"subString": "A"}, 0),
        ({"subString": "A", "expressionType": "nonsense"}, 23),
    ],
)
def test_a_client_may_ask_before_it_subscribes(subscription: dict[str, str], code: int) -> None:
    assert check(Desk(), **subscription).code == code


def test_a_question_without_a_subscription_is_refused() -> None:
    assert Desk().broker.ask(46, body={"clientId": "c"}).code == 1
