"""Responses from templates equal encoded ones."""

from __future__ import annotations

import pytest

from trimq.protocols.rocketmq.wire.responses import encode_pull_response, encode_response, encode_send_response
from trimq.wire.remoting import Command, RemotingConnection


def read(parts: list[bytes | bytearray | memoryview]) -> Command:
    connection = RemotingConnection()
    connection.receive(b"".join(parts))
    command = connection.next_event()
    assert command is not None
    assert connection.next_event() is None
    return command


@pytest.mark.parametrize("transaction", ["", "7F000001", 'a"b\\\n', "ü"])
def test_the_answer_to_a_send_has_the_fields_that_clients_read(transaction: str) -> None:
    command = read(encode_send_response(-3, "7F00", 2, 41, transaction))
    expected = {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true", "msgId": "7F00", "queueId": "2", "queueOffset": "41"}
    assert command.fields == expected | ({"transactionId": transaction} if transaction else {})
    assert (command.code, command.opaque, command.flag, command.language) == (0, -3, 1, "JAVA")


def test_the_answer_to_a_pull_carries_the_units_behind_it() -> None:
    command = read(encode_pull_response(9, 0, "FOUND", 5, 0, 7, [b"abc", memoryview(b"de")]))
    assert command.body == b"abcde"
    assert command.remark == "FOUND"
    assert command.fields == {
        "nextBeginOffset": "5",
        "minOffset": "0",
        "maxOffset": "7",
        "suggestWhichBrokerId": "0",
        "topicSysFlag": "0",
        "groupSysFlag": "0",
    }


def test_any_other_answer_is_encoded() -> None:
    command = read(encode_response(1, 17, {"a": "b"}, "no topic", b"body"))
    assert (command.code, command.fields, command.remark, command.body) == (17, {"a": "b"}, "no topic", b"body")
