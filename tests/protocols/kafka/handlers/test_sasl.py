"""SASL login: the user's permissions apply, and a wrong password closes the connection."""

from __future__ import annotations

import pytest
from protocols.kafka.desk import Desk

from trimq.core.security.access import Right
from trimq.model import SYSTEM, Layout
from trimq.protocols.kafka.handlers.sasl import read_plain
from trimq.protocols.kafka.messages.handshakes import SaslAuthenticateRequest, SaslHandshakeRequest
from trimq.protocols.kafka.messages.topics import CreatableTopic, CreateTopicsRequest
from trimq.protocols.kafka.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    InitProducerIdRequest,
)
from trimq.protocols.kafka.names.codes import Code


class Closes:
    """Outlet that records its close."""

    is_closed = False

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def desk() -> Desk:
    desk = Desk()
    access = desk.core.broker._access
    access.define_user("root", "secret", is_administrator=True)
    access.define_user("alice", "hers")
    access.grant(Right("alice", "", configure="^alice"))
    desk.runner.settle()
    return desk


def closing(desk: Desk) -> Closes:
    desk._conversation._context.outlet = found = Closes()  # type: ignore[assignment]
    return found


def handshake(desk: Desk, mechanism: str = "PLAIN", version: int = 1) -> tuple[int, list[str]]:
    answer = desk.ask(SaslHandshakeRequest(mechanism=mechanism), version)
    return answer.error_code, answer.mechanisms


def log_in(desk: Desk, token: bytes) -> int:
    code: int = desk.ask(SaslAuthenticateRequest(auth_bytes=token)).error_code
    return code


def create(desk: Desk, topic: str) -> int:
    asked = CreatableTopic(name=topic, num_partitions=1, replication_factor=1)
    code: int = desk.ask(CreateTopicsRequest(topics=[asked], timeout_ms=1000)).topics[0].error_code
    return code


def test_a_client_has_the_permissions_of_its_user(desk: Desk) -> None:
    assert create(desk, "alice-1") == Code.TOPIC_AUTHORIZATION_FAILED
    assert handshake(desk) == (Code.NONE, ["PLAIN"])
    assert log_in(desk, b"\0alice\0hers") == Code.NONE
    assert create(desk, "alice-1") == Code.NONE
    assert create(desk, "bob-1") == Code.TOPIC_AUTHORIZATION_FAILED


@pytest.mark.parametrize("token", [b"\0alice\0his", b"\0nobody\0hers", b"\0guest\0guest", b"alice", b"\xff\0a\0b", b""])
def test_a_wrong_login_ends_the_connection(desk: Desk, token: bytes) -> None:
    way = closing(desk)
    handshake(desk)
    assert log_in(desk, token) == Code.SASL_AUTHENTICATION_FAILED
    assert way.is_closed


def test_a_connection_may_log_in_again_as_the_same_user_only(desk: Desk) -> None:
    way = closing(desk)
    for token, code in ((b"\0alice\0hers", Code.NONE), (b"\0alice\0hers", Code.NONE)):
        handshake(desk)
        assert log_in(desk, token) == code
    assert not way.is_closed
    handshake(desk)
    answer = desk.ask(SaslAuthenticateRequest(auth_bytes=b"\0root\0secret"))
    assert answer.error_code == Code.SASL_AUTHENTICATION_FAILED
    assert answer.error_message == "Cannot change principals during re-authentication from alice to root"
    assert way.is_closed


def test_an_unsupported_mechanism_is_refused(desk: Desk) -> None:
    assert handshake(desk, "SCRAM-SHA-256") == (Code.UNSUPPORTED_SASL_MECHANISM, ["PLAIN"])
    assert handshake(desk, version=0) == (Code.UNSUPPORTED_SASL_MECHANISM, ["PLAIN"])
    assert log_in(desk, b"\0alice\0hers") == Code.ILLEGAL_SASL_STATE


def test_without_users_no_login_is_needed() -> None:
    desk = Desk()
    assert handshake(desk) == (Code.ILLEGAL_SASL_STATE, [])
    assert log_in(desk, b"\0alice\0hers") == Code.ILLEGAL_SASL_STATE


def test_a_token_may_name_whom_to_act_for_only_if_that_is_oneself() -> None:
    assert read_plain(b"alice\0alice\0a:b c") == ("alice", "a:b c")
    assert read_plain(b"bob\0alice\0hers") is None
    assert read_plain(b"\0\0hers") is None


def test_a_transaction_writes_no_marker_to_a_topic_that_the_client_may_only_read(desk: Desk) -> None:
    desk.core.broker.topics.create(SYSTEM, "orders", Layout.PARTITION_LOG, 1, {})
    access = desk.core.broker._access
    access.grant(Right("alice", "", write="^txm$", read="^orders$"))
    desk.runner.settle()
    handshake(desk)
    log_in(desk, b"\0alice\0hers")
    started = desk.ask(InitProducerIdRequest(transactional_id="txm", transaction_timeout_ms=60_000))
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="txm",
        v3_and_below_producer_id=started.producer_id,
        v3_and_below_producer_epoch=started.producer_epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name="orders", partitions=[0])],
    )
    (answer,) = desk.ask(request).results_by_topic_v3_and_below
    assert [each.partition_error_code for each in answer.results_by_partition] == [Code.TOPIC_AUTHORIZATION_FAILED]
