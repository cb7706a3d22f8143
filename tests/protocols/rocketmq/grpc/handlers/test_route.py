"""Routes for gRPC clients, and the queues assigned to a consumer."""

from __future__ import annotations

from typing import Any

import pytest
from protocols.rocketmq.grpc.grpc_desk import GrpcDesk

from trimq.core.metadata.cluster import Address
from trimq.protocols.rocketmq.grpc.wire import wire
from trimq.protocols.rocketmq.grpc.wire.enums import AddressScheme, Code, MessageType, Permission

ASKED = wire.Endpoints(scheme=AddressScheme.DOMAIN_NAME, addresses=[wire.Address(host="my.host", port=77)])


def route(desk: GrpcDesk, topic: str = "t") -> Any:
    return desk.client().call("QueryRoute", topic=wire.Resource(name=topic), endpoints=ASKED)


@pytest.mark.parametrize(
    ("fields", "permissions"),
    [
        ({"readQueueNums": 4, "writeQueueNums": 2}, ["READ", "READ", "READ_WRITE", "READ_WRITE"]),
        ({"readQueueNums": 1, "writeQueueNums": 2}, ["WRITE", "READ_WRITE"]),
        ({"perm": 2, "readQueueNums": 2, "writeQueueNums": 2}, ["WRITE", "WRITE"]),
        ({"perm": 4, "readQueueNums": 2, "writeQueueNums": 2}, ["READ", "READ"]),
        ({"perm": 0, "readQueueNums": 1, "writeQueueNums": 3}, ["NONE", "NONE", "NONE"]),
    ],
)
def test_queues_are_numbered_as_by_apache_rocketmqs_proxy(fields: dict[str, Any], permissions: list[str]) -> None:
    desk = GrpcDesk()
    desk.make_topic("t", **fields)
    queues = route(desk).message_queues
    assert [(queue.id, Permission(queue.permission).name) for queue in queues] == list(enumerate(permissions))


@pytest.mark.parametrize("kind", ["NORMAL", "FIFO", "DELAY", "TRANSACTION"])
def test_a_topic_takes_one_kind_of_message(kind: str) -> None:
    desk = GrpcDesk()
    desk.make_topic("t", kind)
    assert list(route(desk).message_queues[0].accept_message_types) == [MessageType[kind]]


@pytest.mark.parametrize(
    ("host", "scheme"),
    [("127.0.0.1", AddressScheme.IPv4), ("::1", AddressScheme.IPv6), ("a.b", AddressScheme.DOMAIN_NAME)],
)
def test_clients_get_the_address_on_which_the_broker_listens(host: str, scheme: AddressScheme) -> None:
    desk = GrpcDesk()
    desk.desk.core.cluster.announce("rocketmq_grpc", Address(host, 8081))
    desk.make_topic("t")
    broker = route(desk).message_queues[0].broker
    assert (broker.name, broker.endpoints.scheme) == ("broker-a", scheme)
    assert [(each.host, each.port) for each in broker.endpoints.addresses] == [(host, 8081)]


def test_a_broker_that_listens_everywhere_is_where_the_client_found_it() -> None:
    desk = GrpcDesk()
    desk.desk.core.cluster.announce("rocketmq_grpc", Address("0.0.0.0", 8081))
    desk.make_topic("t")
    assert route(desk).message_queues[0].broker.endpoints == ASKED


@pytest.mark.parametrize(
    ("topic", "code"),
    [("none", Code.TOPIC_NOT_FOUND), ("", Code.ILLEGAL_TOPIC), ("a b", Code.ILLEGAL_TOPIC)],
)
def test_a_topic_that_is_not_there_has_no_route(topic: str, code: Code) -> None:
    assert route(GrpcDesk(), topic).status.code == code


@pytest.mark.parametrize(("is_orderly", "ids"), [(False, [-1]), (True, [0, 1, 2])])
def test_a_group_gets_all_queues_at_once_unless_it_consumes_in_order(is_orderly: bool, ids: list[int]) -> None:
    desk = GrpcDesk()
    desk.make_topic("t", queues=3)
    desk.make_group("g", consumeMessageOrderly=is_orderly)
    answer = desk.client().call(
        "QueryAssignment", topic=wire.Resource(name="t"), group=wire.Resource(name="g"), endpoints=ASKED
    )
    assert [assignment.message_queue.id for assignment in answer.assignments] == ids


@pytest.mark.parametrize(
    ("topic", "group", "code"),
    [
        ("none", "g", Code.TOPIC_NOT_FOUND),
        ("t", "", Code.ILLEGAL_CONSUMER_GROUP),
        ("t", "$", Code.ILLEGAL_CONSUMER_GROUP),
    ],
)
def test_an_unknown_topic_is_not_assigned(topic: str, group: str, code: Code) -> None:
    desk = GrpcDesk()
    desk.make_topic("t")
    answer = desk.client().call("QueryAssignment", topic=wire.Resource(name=topic), group=wire.Resource(name=group))
    assert answer.status.code == code


def assignment(desk: GrpcDesk, topic: str, group: str) -> Any:
    return desk.client().call(
        "QueryAssignment", topic=wire.Resource(name=topic), group=wire.Resource(name=group), endpoints=ASKED
    )


@pytest.mark.parametrize(("bits", "permission"), [(6, Permission.READ_WRITE), (4, Permission.READ)])
def test_an_assigned_queue_has_the_permission_of_its_topic(bits: int, permission: Permission) -> None:
    desk = GrpcDesk()
    desk.make_topic("t", perm=bits)
    (found,) = assignment(desk, "t", "g").assignments
    assert found.message_queue.permission == permission


@pytest.mark.parametrize("fields", [{"perm": 0}, {"perm": 2}, {"readQueueNums": 0}])
def test_no_queue_of_a_topic_that_cannot_be_read_is_assigned(fields: dict[str, int]) -> None:
    desk = GrpcDesk()
    desk.make_topic("t", **fields)
    answer = assignment(desk, "t", "g")
    assert (answer.status.code, list(answer.assignments)) == (Code.FORBIDDEN, [])


def test_the_name_of_the_topic_is_checked_before_that_of_the_group() -> None:
    assert assignment(GrpcDesk(), "a b", "a b").status.code == Code.ILLEGAL_TOPIC
