"""gRPC producers send to topics of other layouts; receiving from them is refused with the reason."""

from __future__ import annotations

import gzip

import pytest
from protocols.rocketmq.grpc.grpc_desk import GrpcDesk, Phone

from trimq.model import Caller
from trimq.protocols.rocketmq.grpc.wire import wire
from trimq.protocols.rocketmq.grpc.wire.enums import Code, Encoding, MessageType

CALLER = Caller("anonymous", "client", "10.0.0.1:5000", "amqp")


@pytest.fixture
def desk() -> GrpcDesk:
    desk = GrpcDesk()
    desk.desk.core.broker.queues.declare_queue(CALLER, "tasks", True, False, False, {}, "owner")
    desk.desk.settle()
    return desk


def message(body: bytes = b"hello", **system: object) -> object:
    properties = wire.SystemProperties(**{"message_id": f"01{7:032X}", "message_type": MessageType.NORMAL, **system})
    return wire.Message(
        topic=wire.Resource(name="tasks"),
        system_properties=properties,
        user_properties={"colour": "red"},
        body=body,
    )


def stored(desk: GrpcDesk) -> list[tuple[bytes | None, bytes | None, dict[str, str]]]:
    topic = desk.desk.core.broker.foreign_topics.find_batched(CALLER, "tasks", None)
    assert topic is not None
    run = topic.foreign.stream(0).read(0, 100, 1 << 20, may_wait=True)
    return [(each.body, each.key, dict(each.fields)) for _, each in run.messages]


def phone_of(desk: GrpcDesk) -> Phone:
    phone = desk.client()
    phone.produce("tasks")
    return phone


def test_a_message_is_stored_with_its_tag_and_key(desk: GrpcDesk) -> None:
    answer = phone_of(desk).send(message(tag="paid", keys=["k"]))
    assert (answer.status.code, answer.entries[0].offset) == (Code.OK, 0)
    ((body, key, fields),) = stored(desk)
    assert (body, key, fields["rmq.TAGS"], fields["rmq.UNIQ_KEY"]) == (b"hello", b"k", "paid", f"01{7:032X}")
    assert not any("born" in name.lower() and name != "rmq.born-host" for name in fields)


def test_several_messages_are_stored_together_and_expanded(desk: GrpcDesk) -> None:
    packed = message(gzip.compress(b"large" * 100), body_encoding=Encoding.GZIP)
    answer = phone_of(desk).send(message(), packed)
    assert [each.offset for each in answer.entries] == [0, 1]
    assert [body for body, _, _ in stored(desk)] == [b"hello", b"large" * 100]


@pytest.mark.parametrize("system", [{"message_type": MessageType.TRANSACTION}, {"message_group": "g"}])
def test_a_message_that_is_not_plain_is_refused(desk: GrpcDesk, system: dict[str, object]) -> None:
    answer = phone_of(desk).send(message(**system))
    assert answer.status.code == Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE
    assert stored(desk) == []


def test_the_route_of_a_topic_is_told(desk: GrpcDesk) -> None:
    answer = desk.client().call("QueryRoute", topic=wire.Resource(name="tasks"))
    assert [each.id for each in answer.message_queues] == [0]


def test_receiving_is_refused_with_the_reason(desk: GrpcDesk) -> None:
    phone = desk.client()
    reply = phone.begin("ReceiveMessage", phone.receiving("tasks"))
    status = phone.take("ReceiveMessage", reply)[0].status
    assert status.code == Code.FORBIDDEN
    assert "another protocol" in status.message
    answer = phone.call("QueryAssignment", topic=wire.Resource(name="tasks"), group=wire.Resource(name="g"))
    assert answer.status.code == Code.FORBIDDEN
