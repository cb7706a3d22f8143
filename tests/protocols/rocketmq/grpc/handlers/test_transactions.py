"""Transactions over gRPC: half messages are committed or rolled back by their ids, also after a restart; check-back of
producers."""

from __future__ import annotations

from typing import Any

import pytest
from protocols.rocketmq.grpc.grpc_desk import GrpcDesk, Phone, message
from protocols.rocketmq.rocketmq_desk import bodies_of

from trimq.protocols.rocketmq.grpc.wire import wire
from trimq.protocols.rocketmq.grpc.wire.enums import Code, MessageType, TransactionResolution, TransactionSource

COMMIT, ROLLBACK = TransactionResolution.COMMIT, TransactionResolution.ROLLBACK


def desk_with(**settings: Any) -> GrpcDesk:
    desk = GrpcDesk(**settings)
    desk.make_topic("t", "TRANSACTION")
    return desk


def half(client: Phone, id: str = "H", **system: Any) -> str:
    sent = message("t", b"half", MessageType.TRANSACTION, message_id=id, **system)
    found: str = client.send(sent).entries[0].transaction_id
    return found


def decide(client: Phone, id: str, how: int, topic: str = "t", source: int = 1) -> Code:
    answer = client.call(
        "EndTransaction",
        topic=wire.Resource(name=topic),
        message_id=id,
        transaction_id=id,
        resolution=how,
        source=source,
    )
    return Code(answer.status.code)


def found(desk: GrpcDesk) -> list[bytes]:
    return bodies_of(desk.desk.broker.pull("t"))


def asked(client: Phone) -> list[Any]:
    return [
        command.recover_orphaned_transaction_command
        for command in client.heard
        if command.WhichOneof("command") == "recover_orphaned_transaction_command"
    ]


@pytest.mark.parametrize(("how", "bodies"), [(COMMIT, [b"half"]), (ROLLBACK, [])])
def test_a_half_message_is_delivered_when_it_is_committed(how: int, bodies: list[bytes]) -> None:
    desk = desk_with()
    id = half(desk.client())
    assert (id, found(desk)) == ("H", [])
    assert decide(desk.client("another"), id, how) == Code.OK
    assert found(desk) == bodies
    assert decide(desk.client(), id, COMMIT) == Code.INTERNAL_SERVER_ERROR
    assert found(desk) == bodies


def test_a_half_message_is_decided_after_a_restart_too() -> None:
    desk = desk_with()
    id = half(desk.client())
    again = desk.restart()
    assert decide(again.client(), id, COMMIT) == Code.OK
    assert found(again) == [b"half"]


def test_an_unknown_decision_leaves_it_undecided() -> None:
    desk = desk_with()
    id = half(desk.client())
    assert decide(desk.client(), id, 0) == Code.OK
    assert found(desk) == []
    assert decide(desk.client(), id, COMMIT) == Code.OK


@pytest.mark.parametrize(
    ("id", "topic", "code"),
    [
        ("zz", "t", Code.INTERNAL_SERVER_ERROR),
        ("", "t", Code.INVALID_TRANSACTION_ID),
        ("H", "u", Code.INTERNAL_SERVER_ERROR),
    ],
)
def test_an_invalid_transaction_cannot_be_decided(id: str, topic: str, code: Code) -> None:
    desk = desk_with()
    desk.make_topic("u", "TRANSACTION")
    half(desk.client())
    assert decide(desk.client(), id, COMMIT, topic) == code


def test_the_producer_of_an_undecided_half_message_is_checked_back_over_its_stream() -> None:
    desk = desk_with(transaction_timeout_ms=3000, transaction_check_interval_ms=3000)
    client = desk.client()
    client.produce("t")
    id = half(client, recovery_ms=2000, keys=["k"])
    desk.desk.advance(4000)
    (question,) = asked(client)
    shown = question.message
    assert (question.transaction_id, shown.body, shown.topic.name) == (id, b"half", "t")
    assert (shown.system_properties.message_id, shown.system_properties.message_type) == (id, MessageType.TRANSACTION)
    assert shown.user_properties["TRANSACTION_CHECK_TIMES"] == "1"
    assert decide(client, id, COMMIT, source=TransactionSource.SOURCE_SERVER_CHECK) == Code.OK
    assert found(desk) == [b"half"]


def test_a_producer_whose_stream_is_down_is_checked_back_after_its_reconnect() -> None:
    desk = desk_with(transaction_timeout_ms=3000, transaction_check_interval_ms=3000)
    client = desk.client()
    client.produce("t")
    half(client)
    client.stream.closed()
    desk.desk.advance(7000)
    assert asked(client) == []
    client.produce("t")
    desk.desk.advance(4000)
    (question,) = asked(client)
    assert question.message.user_properties["TRANSACTION_CHECK_TIMES"] == "1"


def test_a_producer_that_does_not_read_its_stream_is_not_asked() -> None:
    desk = desk_with(transaction_timeout_ms=3000, transaction_check_interval_ms=3000)
    client = desk.client()
    client.produce("t")
    half(client)
    client.line.is_congested = True
    desk.desk.advance(30_000)
    assert asked(client) == []
    client.line.is_congested = False
    desk.desk.advance(3000)
    (question,) = asked(client)
    assert question.message.user_properties["TRANSACTION_CHECK_TIMES"] == "1"
