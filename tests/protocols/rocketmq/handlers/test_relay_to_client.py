"""Requests of tools to consumers: the broker relays them to the client and returns its answer."""

from __future__ import annotations

import json
from typing import Any

from protocols.rocketmq.rocketmq_desk import Desk, Peer, request, units_of

from trimq.protocols.contract import Reply
from trimq.wire.remoting import RESPONSE, Command


def desk_with_member() -> tuple[Desk, Peer]:
    desk = Desk()
    desk.broker.send("t", b"direct")
    member = desk.connect()
    member.heartbeat("c1", "g", "t")
    member.way.sent.clear()
    return desk, member


def answer(peer: Peer, question: Command, body: bytes = b"", code: int = 0) -> None:
    frame = request(code, {}, body, RESPONSE, 479).replace(b'"opaque": 5', b'"opaque": %d' % question.opaque)
    peer.give(frame)


def begin(desk: Desk, code: int, **fields: Any) -> Reply:
    reply = desk.broker.begin(code, fields)
    assert reply is not None
    return reply


def test_the_running_info_of_a_member() -> None:
    desk, member = desk_with_member()
    reply = begin(desk, 307, consumerGroup="g", clientId="c1", jstackEnable=True)
    assert not desk.is_ready(reply)
    (asked,) = member.way.sent
    assert (asked.code, asked.flag) == (307, 0)
    assert asked.fields == {"consumerGroup": "g", "clientId": "c1", "jstackEnable": "true"}
    answer(member, asked, b'{"jstack":"mine"}')
    assert desk.take(reply).body == b'{"jstack":"mine"}'


def test_a_refusal_of_the_member_is_given_on() -> None:
    desk, member = desk_with_member()
    reply = begin(desk, 307, consumerGroup="g", clientId="c1")
    answer(member, member.way.sent[0], code=1)
    assert desk.take(reply).code == 1


def test_a_member_consumes_one_message() -> None:
    desk, member = desk_with_member()
    id = desk.broker.send("t", b"another").fields["msgId"]
    reply = begin(desk, 309, consumerGroup="g", clientId="", msgId=id, brokerName="broker-a")
    (asked,) = member.way.sent
    assert sorted(asked.fields) == ["brokerName", "clientId", "consumerGroup", "groupSysFlag", "msgId"]
    assert [bytes(unit.body) for unit in units_of(asked)] == [b"another"]
    answer(member, asked, b'{"consumeResult":"CR_SUCCESS"}')
    assert desk.take(reply).body == b'{"consumeResult":"CR_SUCCESS"}'


def test_an_unknown_member_cannot_be_asked() -> None:
    desk, _ = desk_with_member()
    assert desk.broker.ask(307, {"consumerGroup": "g", "clientId": "c2"}).code == 1
    assert desk.broker.ask(307, {"consumerGroup": "none", "clientId": "c1"}).code == 1
    assert desk.broker.ask(309, {"consumerGroup": "g", "clientId": "c1", "msgId": "nonsense"}).code == 1
    far = "7F00000100002A9F" + "0000000000FFFFFF"
    assert desk.broker.ask(309, {"consumerGroup": "g", "clientId": "c1", "msgId": far}).code == 1
    assert desk.broker.ask(223, {"topic": "t", "group": "none"}).code == 1
    assert desk.broker.ask(223, {"topic": "none", "group": "g"}).code == 17


def test_a_member_that_does_not_answer_or_disconnects() -> None:
    desk, member = desk_with_member()
    silent = begin(desk, 307, consumerGroup="g", clientId="c1")
    desk.let_pass(10_000)
    assert desk.take(silent).code == 207
    gone = begin(desk, 307, consumerGroup="g", clientId="c1")
    member.conversation.closed()
    assert desk.take(gone).code == 207


def test_the_requester_may_be_disconnected_when_the_answer_arrives() -> None:
    desk, member = desk_with_member()
    for code, fields in ((307, {"consumerGroup": "g"}), (223, {"topic": "t", "group": "g"})):
        reply = begin(desk, code, **fields)
        assert reply.on_abandon is not None
        reply.on_abandon()
        answer(member, member.way.sent[-1], b"{}")
        assert not desk.is_ready(reply)


JAVA = b'{"messageQueueTable":{{"brokerName":"broker-a","queueId":0,"topic":"t"}:7}}'


def test_how_far_members_have_pulled() -> None:
    desk, first = desk_with_member()
    second, third = desk.connect(), desk.connect()
    second.heartbeat("c2", "g", "t")
    third.heartbeat("c3", "g", "t")
    reply = begin(desk, 223, topic="t", group="g")
    for member, body in ((first, JAVA), (second, b"nonsense")):
        asked = member.way.sent[-1]
        assert (asked.code, asked.fields) == (221, {"topic": "t", "group": "g"})
        answer(member, asked, body)
    assert not desk.is_ready(reply)
    third.conversation.closed()
    shown = desk.take(reply).body
    assert shown == b'{"consumerTable":{"c1":%b,"c2":{}},"messageQueueTable":{}}' % JAVA[21:-1]


def test_one_member_may_be_named() -> None:
    desk, member = desk_with_member()
    reply = begin(desk, 223, topic="t", group="g", clientAddr="c1")
    answer(member, member.way.sent[-1], JAVA)
    assert b'"c1":{{' in desk.take(reply).body
    unknown = desk.take(begin(desk, 223, topic="t", group="g", clientAddr="c9"))
    assert json.loads(unknown.body) == {"consumerTable": {}, "messageQueueTable": {}}
