"""Rights that RocketMQ requests need: every remoting code and every gRPC method, for a caller without any right, and
for one whose rights concern other topics and groups."""

from __future__ import annotations

import json
from typing import Any

import pytest
from protocols.rocketmq.grpc.grpc_desk import GrpcDesk
from protocols.rocketmq.rocketmq_desk import Desk
from protocols.rocketmq.transaction_desk import COMMIT, decide, found, half, heard, produce

from trimq.core.security.access import Right
from trimq.model import DEFAULT_NAMESPACE
from trimq.protocols.rocketmq.grpc.front_end import METHODS
from trimq.protocols.rocketmq.grpc.wire import wire
from trimq.protocols.rocketmq.grpc.wire.codes import GrpcStatusError
from trimq.protocols.rocketmq.grpc.wire.enums import ClientType, Code
from trimq.protocols.rocketmq.handlers.tables import BROKER, NAME_SERVER
from trimq.protocols.rocketmq.wire.codes import ResponseCode

NO_PERMISSION = ResponseCode.NO_PERMISSION

# What a caller with other rights may still ask: nothing in these answers is about the topic `t` or the group `g`.
ABOUT_NOTHING = {
    **dict.fromkeys((35, 46), "ends or checks what the caller itself has sent"),
    **dict.fromkeys((21, 43, 201, 206, 224, 305, 311, 312, 313, 328, 343, 304), "lists only what the caller may see"),
    **dict.fromkeys((106, 317), "tells the addresses of brokers"),
    **dict.fromkeys((402, 315), "tells modes and counters of names that the caller knows"),
    **dict.fromkeys((101, 219, 319, 318), "tells texts that operators have stored for clients"),
    **dict.fromkeys((103, 104, 322, 901, 904), "registers brokers"),
}
ASKED = {
    "topic": "t",
    "b": "t",
    "group": "g",
    "groupName": "g",
    "consumerGroup": "g",
    "producerGroup": "g",
    "srcGroup": "g",
    "destGroup": "h",
    "compareGroup": "g",
    "clientId": "c",
    "clientID": "c",
    "queueId": 0,
    "offset": 0,
    "timestamp": 0,
    "namespace": "ns",
    "key": "k",
    "value": "v",
    "brokerName": "broker-a",
}


def guard(desk: Desk, **rights: str) -> None:
    """From now on, a user is defined; the callers of these tests have only these rights."""
    access = desk.core.broker._access
    access.define_user("somebody", "secret", is_administrator=True)
    if rights:
        access.grant(Right("anonymous", DEFAULT_NAMESPACE, **rights))
    desk.runner.settle()


@pytest.mark.parametrize("table", [BROKER, NAME_SERVER], ids=["broker", "name server"])
def test_a_caller_without_any_right_is_refused_whatever_it_asks(table: dict[int, Any]) -> None:
    desk = Desk()
    peer = desk.broker if table is BROKER else desk.names
    desk.broker.send("t")
    desk.broker.heartbeat("c", "g", "t")
    guard(desk)
    outcomes = {code: peer.ask(code, ASKED, json.dumps(ASKED).encode()).code for code in table}
    assert {code for code, outcome in outcomes.items() if outcome != NO_PERMISSION} == set()


FIELDS: dict[int, tuple[dict[str, Any], Any]] = {
    34: (
        {},
        {
            "clientID": "c",
            "consumerDataSet": [{"groupName": "g", "subscriptionDataSet": [], "consumeType": "CONSUME_POP"}],
        },
    ),
    38: ({"consumerGroup": "g"}, b""),
    41: ({}, {"consumerGroup": "g", "clientId": "x", "mqSet": []}),
    42: ({}, {"consumerGroup": "g", "clientId": "x", "mqSet": []}),
    203: ({"consumerGroup": "g"}, b""),
    204: ({"producerGroup": "pg"}, b""),
    207: ({"groupName": "g"}, b""),
    223: ({"topic": "mine", "group": "g"}, b""),
    307: ({"consumerGroup": "g", "clientId": "c", "jstackEnable": True}, b""),
    309: ({"consumerGroup": "g", "clientId": "c", "msgId": "0" * 32}, b""),
    345: ({"group": "g", "topic": "mine"}, b""),
    352: ({"group": "g"}, b""),
    18: ({}, {"topicConfigList": [{"topicName": "t", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6}]}),
    225: ({}, {"groupConfigList": [{"groupName": "g"}]}),
    907: ({}, b""),
    200151: (
        {},
        {
            "brokerName": "broker-a",
            "acks": [
                {"c": "g", "t": "mine", "r": "0", "so": 0, "rq": 0, "q": 0, "pt": 1, "it": 1, "b": "AQAAAAAAAAA="}
            ],
        },
    ),
    26: ({}, b""),
    28: ({}, b""),
    200055: ({"topic": "mine", "consumerGroup": "g", "queueId": 0}, b""),
    200050: (
        {
            "consumerGroup": "g",
            "topic": "mine",
            "queueId": 0,
            "maxMsgNums": 1,
            "invisibleTime": 1000,
            "pollTime": 0,
            "bornTime": 0,
            "initMode": 0,
            "exp": "*",
            "expType": "TAG",
            "order": False,
        },
        b"",
    ),
    11: (
        {
            "consumerGroup": "g",
            "topic": "mine",
            "queueId": 0,
            "queueOffset": 0,
            "maxMsgNums": 1,
            "sysFlag": 4,
            "commitOffset": 0,
            "subscription": "*",
        },
        b"",
    ),
    14: ({"consumerGroup": "g", "topic": "mine", "queueId": 0}, b""),
    15: ({"consumerGroup": "g", "topic": "mine", "queueId": 0, "commitOffset": 0}, b""),
    222: ({"topic": "mine", "group": "g", "timestamp": 0, "isForce": True}, b""),
    314: ({"srcGroup": "g", "destGroup": "mine", "topic": "mine", "offline": False}, b""),
    208: ({"consumerGroup": "g", "topic": "mine"}, b""),
    370: ({"topic": "t", "recallHandle": "x"}, b""),
}


@pytest.mark.parametrize("code", sorted(FIELDS))
def test_rights_on_other_names_do_not_help(code: int) -> None:
    desk = Desk()
    desk.broker.send("t")
    desk.broker.send("mine")
    desk.broker.heartbeat("c", "g", "t")
    produce(desk)
    guard(desk, configure="^mine$", write="^mine$", read="^mine$")
    fields, body = FIELDS[code]
    answer = desk.broker.ask(code, fields, body)
    assert (answer.code, len(answer.body)) == (NO_PERMISSION, 0)


@pytest.mark.parametrize("code", [201, 328, 300])
def test_lists_leave_out_what_the_caller_may_not_see(code: int) -> None:
    desk = Desk()
    desk.broker.send("mine")
    desk.broker.heartbeat("c", "their-group", "mine")
    desk.broker.ask(15, {"consumerGroup": "their-group", "topic": "mine", "queueId": 0, "commitOffset": 0})
    desk.broker.ask(34, body={"clientID": "c", "producerDataSet": [{"groupName": "their-producers"}]})
    guard(desk, configure="^mine$", write="^mine$", read="^mine$")
    answer = desk.broker.ask(code, {"topic": "mine"})
    assert answer.code == 0
    assert b"their" not in bytes(answer.body)


def test_a_transaction_is_decided_only_by_those_who_may_write_its_topic() -> None:
    desk = Desk()
    asked = half(desk)
    guard(desk, write="^mine$", read=".*")
    assert decide(desk, asked, COMMIT).code == NO_PERMISSION
    desk.core.broker._access.grant(Right("anonymous", DEFAULT_NAMESPACE, write="^t$", read=".*"))
    desk.runner.settle()
    assert decide(desk, asked, COMMIT).code == 0
    assert found(desk) == [b"half"]


@pytest.mark.parametrize(("write", "is_asked"), [("^mine$", False), ("^t$", True)])
def test_a_check_back_goes_only_to_producers_that_may_write_the_topic(write: str, is_asked: bool) -> None:
    desk = Desk()
    half(desk)
    guard(desk, write=write, read="^mine$")
    produce(desk)
    desk.advance(60_000)
    assert bool(heard(desk)) == is_asked


def test_grpc_methods_are_refused_without_any_right() -> None:
    desk = GrpcDesk()
    desk.make_topic("t")
    desk.make_group("g")
    guard(desk.desk)
    phone = desk.client()
    outcomes = {name: phone.call(name) for name in METHODS}
    codes = {name: answer.status.code for name, answer in outcomes.items()}
    assert codes == dict.fromkeys(METHODS, Code.FORBIDDEN)
    settings = wire.Settings(client_type=ClientType.PRODUCER, publishing=wire.Publishing())
    with pytest.raises(GrpcStatusError, match="anonymous"):
        phone.tell(settings)


def test_a_grpc_client_needs_rights_on_its_group_and_its_topics() -> None:
    desk = GrpcDesk()
    desk.make_topic("t")
    desk.make_group("g")
    guard(desk.desk, write="^mine$", read="^mine$")
    phone = desk.client()
    for settings in (
        wire.Settings(client_type=ClientType.PRODUCER, publishing=wire.Publishing(topics=[wire.Resource(name="t")])),
        wire.Settings(
            client_type=ClientType.SIMPLE_CONSUMER, subscription=wire.Subscription(group=wire.Resource(name="g"))
        ),
    ):
        with pytest.raises(GrpcStatusError, match="anonymous"):
            phone.tell(settings)


def test_every_code_is_refused_or_explained() -> None:
    """A new code needs a row: in `FIELDS`, or in `ABOUT_NOTHING` with the reason why it needs no right of its own."""
    desk = Desk()
    desk.broker.send("t")
    desk.broker.heartbeat("c", "g", "t")
    guard(desk, configure="^mine$", write="^mine$", read="^mine$")
    told = set()
    for table, peer in ((BROKER, desk.broker), (NAME_SERVER, desk.names)):
        for code in table.keys() - FIELDS.keys():
            if peer.ask(code, ASKED, json.dumps(ASKED).encode()).code == 0:
                told.add(code)
    assert told - ABOUT_NOTHING.keys() == set()
