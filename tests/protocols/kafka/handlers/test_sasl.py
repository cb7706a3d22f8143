"""SASL login: the user's permissions apply, and a wrong password closes the connection."""

from __future__ import annotations

import hashlib
import json
import warnings
from pathlib import Path
from typing import Any

import pytest
from joserfc import jwt
from joserfc.jwk import KeySet, RSAKey
from protocols.kafka.desk import NOW_MS, Desk

from trimq.core.security.access import Right, User
from trimq.errors import ProtocolError
from trimq.model import SYSTEM, Layout
from trimq.protocols.kafka.logins.mechanisms import Rejected, read_plain
from trimq.protocols.kafka.messages.credentials import AlterUserScramCredentialsRequest, ScramCredentialUpsertion
from trimq.protocols.kafka.messages.handshakes import SaslAuthenticateRequest, SaslHandshakeRequest
from trimq.protocols.kafka.messages.topics import CreatableTopic, CreateTopicsRequest
from trimq.protocols.kafka.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    InitProducerIdRequest,
)
from trimq.protocols.kafka.names.codes import Code

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # caused by its own imports
    from kafka.net.sasl.scram import ScramClient

MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]


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
    assert handshake(desk) == (Code.NONE, MECHANISMS)
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
    assert answer.error_message == "Cannot change principals during re-authentication from User.alice: User.root"
    assert way.is_closed


@pytest.mark.parametrize(("mechanism", "version"), [("GSSAPI", 1), ("plain", 1), ("PLAIN", 0)])
def test_an_unsupported_mechanism_is_refused_and_ends_the_connection(desk: Desk, mechanism: str, version: int) -> None:
    way = closing(desk)
    assert handshake(desk, mechanism, version) == (Code.UNSUPPORTED_SASL_MECHANISM, MECHANISMS)
    assert way.is_closed
    assert log_in(desk, b"\0alice\0hers") == Code.ILLEGAL_SASL_STATE


def test_a_second_handshake_during_a_login_ends_the_connection(desk: Desk) -> None:
    way = closing(desk)
    handshake(desk)
    assert handshake(desk) == (Code.ILLEGAL_SASL_STATE, [])
    assert way.is_closed


def test_a_request_in_the_middle_of_a_login_ends_the_connection(desk: Desk) -> None:
    handshake(desk)
    with pytest.raises(ProtocolError, match="in the middle"):
        create(desk, "alice-1")


def test_a_token_without_handshake_after_a_login_is_refused_and_the_connection_stays(desk: Desk) -> None:
    handshake(desk)
    answer = desk.ask(SaslAuthenticateRequest(auth_bytes=b"\0alice\0hers"))
    assert (answer.error_code, answer.error_message) == (Code.NONE, "")
    answer = desk.ask(SaslAuthenticateRequest(auth_bytes=b"\0alice\0hers"))
    reason = "SaslAuthenticate request received after successful authentication"
    assert (answer.error_code, answer.error_message) == (Code.ILLEGAL_SASL_STATE, reason)
    assert create(desk, "alice-1") == Code.NONE


def test_without_users_no_login_is_needed() -> None:
    desk = Desk()
    assert handshake(desk) == (Code.ILLEGAL_SASL_STATE, [])
    assert log_in(desk, b"\0alice\0hers") == Code.ILLEGAL_SASL_STATE


def test_a_token_may_name_whom_to_act_for_only_if_that_is_oneself() -> None:
    assert read_plain(b"alice\0alice\0a:b c") == ("alice", "a:b c")
    for token, answer in (
        (b"bob\0alice\0hers", "Client requested an authorization id that is different from username"),
        (b"\0\0hers", "username not specified"),
        (b"\0alice\0", "password not specified"),
    ):
        refused = read_plain(token)
        assert isinstance(refused, Rejected)
        assert refused.answer == f"Authentication failed: {answer}"


def log_in_by_scram(desk: Desk, user: str, password: str, mechanism: str = "SCRAM-SHA-256") -> Any:
    """Logs in with the client of kafka-python. Returns the last response."""
    client = ScramClient(user, password, mechanism)
    assert handshake(desk, mechanism) == (Code.NONE, MECHANISMS)
    answer = desk.ask(SaslAuthenticateRequest(auth_bytes=client.first_message()))
    assert (answer.error_code, answer.session_lifetime_ms) == (Code.NONE, 0)
    client.process_server_first_message(answer.auth_bytes)
    answer = desk.ask(SaslAuthenticateRequest(auth_bytes=client.final_message()))
    if answer.error_code == Code.NONE:
        client.process_server_final_message(answer.auth_bytes)  # checks that the broker knows the password
    return answer


def define(desk: Desk, user: str, password: str) -> None:
    desk.core.broker.users.define(SYSTEM, user, password, None, lambda ticket: None)
    desk.runner.settle()


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_user_logs_in_by_scram_with_the_password_that_was_set(desk: Desk, mechanism: str) -> None:
    define(desk, "alice", "new")
    assert log_in_by_scram(desk, "alice", "new", mechanism).error_code == Code.NONE
    assert create(desk, "alice-1") == Code.NONE
    assert create(desk, "bob-1") == Code.TOPIC_AUTHORIZATION_FAILED


@pytest.mark.parametrize(("user", "password"), [("alice", "hers"), ("nobody", "x"), ("guest", "guest")])
def test_wrong_scram_logins_cannot_be_told_apart(desk: Desk, user: str, password: str) -> None:
    define(desk, "alice", "new")
    define(desk, "guest", "guest")  # not from this address
    way = closing(desk)
    answer = log_in_by_scram(desk, user, password)
    assert answer.error_code == Code.SASL_AUTHENTICATION_FAILED
    assert answer.error_message == (
        "Authentication failed during authentication due to invalid credentials with SASL mechanism SCRAM-SHA-256"
    )
    assert way.is_closed


def test_guesses_by_scram_are_delayed_more_and_more(desk: Desk) -> None:
    define(desk, "alice", "new")
    closing(desk)
    codes = []
    for _ in range(20):
        handshake(desk, "SCRAM-SHA-256")
        client = ScramClient("alice", "guess", "SCRAM-SHA-256")
        client.process_server_first_message(
            desk.ask(SaslAuthenticateRequest(auth_bytes=client.first_message())).auth_bytes
        )
        before_ms = desk.liveness.now_ms()
        request = SaslAuthenticateRequest(auth_bytes=client.final_message())
        reply = desk.begin(request, 2)
        assert reply is not None
        while reply.is_open:
            desk.let_pass(50)
        waited_ms = desk.liveness.now_ms() - before_ms
        codes.append(desk.read_answer(reply, request, 2).error_code)
    assert set(codes) == {Code.SASL_AUTHENTICATION_FAILED}
    assert waited_ms >= 1000


def test_keys_that_an_administrator_stored_log_in_without_a_password_here(desk: Desk) -> None:
    handshake(desk)
    log_in(desk, b"\0root\0secret")
    salted = hashlib.pbkdf2_hmac("sha512", b"pencil", b"salt", 4096)
    stored = ScramCredentialUpsertion(name="carol", mechanism=2, iterations=4096, salt=b"salt", salted_password=salted)
    (result,) = desk.ask(AlterUserScramCredentialsRequest(upsertions=[stored])).results
    assert result.error_code == Code.NONE
    other = desk.connect()
    closing(other)
    assert log_in_by_scram(other, "carol", "pencil", "SCRAM-SHA-512").error_code == Code.NONE
    assert create(other, "alice-1") == Code.TOPIC_AUTHORIZATION_FAILED
    closing(desk)
    assert log_in_by_scram(desk, "carol", "pencil", "SCRAM-SHA-256").error_code == Code.SASL_AUTHENTICATION_FAILED


def test_scram_ends_with_the_password_and_with_the_user(desk: Desk) -> None:
    define(desk, "alice", "new")
    desk.core.broker.users.restore(SYSTEM, [User("alice", "scrypt$of$another", False)], [])
    desk.runner.settle()
    assert desk.core.credentials.scram.of("alice") == []
    define(desk, "alice", "new")
    assert len(desk.core.credentials.scram.of("alice")) == 2
    desk.core.broker.users.restore(SYSTEM, desk.core.broker.users.all(SYSTEM), [])
    assert len(desk.core.credentials.scram.of("alice")) == 2  # nothing changed
    desk.core.broker.users.remove(SYSTEM, "alice")
    assert desk.core.credentials.scram.of("alice") == []


@pytest.mark.parametrize(
    "first",
    [b"n,a=bob,n=alice,r=abc", b"n,,n=alice", b"", b"\xff", b"n,,n=alice,r=abc,", b"n,,n=alice,r=abc,tokenauth=true"],
)
def test_a_scram_login_that_is_not_one_ends_the_connection(desk: Desk, first: bytes) -> None:
    way = closing(desk)
    handshake(desk, "SCRAM-SHA-512")
    code = log_in(desk, first)
    if code == Code.NONE:
        code = log_in(desk, b"c=biws,r=abc,p=")
    assert code == Code.SASL_AUTHENTICATION_FAILED
    assert way.is_closed
    assert log_in(desk, b"\0alice\0hers") == Code.ILLEGAL_SASL_STATE


@pytest.fixture
def short() -> Desk:
    desk = Desk(kafka={"max_reauth_ms": 60_000})
    define(desk, "alice", "hers")
    desk.core.broker.users.grant(SYSTEM, Right("alice", "", configure="^alice"))
    desk.runner.settle()
    return desk


def test_a_session_ends_unless_the_client_logs_in_again(short: Desk) -> None:
    for name in ("alice-1", "alice-2"):
        answer = log_in_by_scram(short, "alice", "hers")
        assert answer.session_lifetime_ms == 60_000
        assert create(short, name) == Code.NONE
        short.let_pass(59_999)
    short.let_pass(1)
    with pytest.raises(ProtocolError, match="expired"):
        create(short, "alice-3")
    assert log_in_by_scram(short, "alice", "hers").error_code == Code.NONE  # the session closes it before
    assert create(short, "alice-3") == Code.NONE


# --- bearer tokens ----------------------------------------------------------------------------------------------------

ISSUER = RSAKey.generate_key(2048, {"kid": "k"})
BEARER = [*MECHANISMS, "OAUTHBEARER"]


def bearer(subject: str = "alice", lifetime_s: int = 300, key: RSAKey = ISSUER) -> bytes:
    claims = {"sub": subject, "exp": NOW_MS // 1000 + lifetime_s}
    token = jwt.encode({"alg": "RS256", "kid": "k"}, claims, key, algorithms=["RS256"])
    return f"n,,\x01auth=Bearer {token}\x01\x01".encode()


@pytest.fixture
def issued(tmp_path: Path) -> Desk:
    keys = tmp_path / "jwks.json"
    keys.write_text(json.dumps(KeySet([ISSUER]).as_dict(private=False)))
    desk = Desk(kafka={"oauth_jwks_file": str(keys)})
    define(desk, "root", "secret")
    desk.core.broker._access.grant(Right("alice", "", configure="^alice"))
    desk.runner.settle()
    return desk


def test_a_bearer_token_logs_in_its_principal_until_it_expires(issued: Desk) -> None:
    assert handshake(issued, "OAUTHBEARER") == (Code.NONE, BEARER)
    answer = issued.ask(SaslAuthenticateRequest(auth_bytes=bearer()))
    assert (answer.error_code, answer.session_lifetime_ms) == (Code.NONE, 300_000)
    assert create(issued, "alice-1") == Code.NONE
    assert create(issued, "bob-1") == Code.TOPIC_AUTHORIZATION_FAILED
    issued.let_pass(300_000)
    with pytest.raises(ProtocolError, match="expired"):
        create(issued, "alice-2")


def test_a_wrong_bearer_token_is_told_and_fails_after_the_clients_reply(issued: Desk) -> None:
    way = closing(issued)
    for token in (bearer(lifetime_s=-300), bearer(key=RSAKey.generate_key(2048, {"kid": "k"}))):
        way.is_closed = False
        handshake(issued, "OAUTHBEARER")
        answer = issued.ask(SaslAuthenticateRequest(auth_bytes=token))
        assert (answer.error_code, answer.auth_bytes) == (Code.NONE, b'{"status":"invalid_token"}')
        assert log_in(issued, b"\x01") == Code.SASL_AUTHENTICATION_FAILED
        assert way.is_closed


@pytest.mark.parametrize(
    "first",
    [
        *(b"", b"\xff", b"n,,", b"n,,\x01\x01", b"n,,\x01auth=Basic x\x01\x01", b"n,,\x01auth=Bearer \x01\x01"),
        *(b"y,,\x01auth=Bearer x\x01\x01", bearer().replace(b"n,,", b"n,a=bob,"), bearer("guest")),
    ],
)
def test_a_message_without_a_bearer_token_of_its_own_is_refused(issued: Desk, first: bytes) -> None:
    way = closing(issued)
    handshake(issued, "OAUTHBEARER")
    assert log_in(issued, first) == Code.SASL_AUTHENTICATION_FAILED
    assert way.is_closed


def test_logins_are_counted_and_failures_logged_without_their_secrets(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    handshake(desk)
    log_in(desk, b"\0alice\0hers")
    closing(desk)
    handshake(desk)
    log_in(desk, b"\0alice\0planted-secret")
    page = desk.metrics.render().decode()
    assert 'trimq_logins_total{protocol="kafka",result="success"} 1' in page
    assert 'trimq_logins_total{protocol="kafka",result="failure"} 1' in page
    (record,) = (record for record in caplog.records if "login" in record.message)
    assert record.message == (
        "kafka login of user 'alice' from 10.0.0.1:5000 with PLAIN failed (unknown user or wrong password)"
    )
    assert "planted-secret" not in caplog.text


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


def test_scram_guesses_are_delayed_as_those_of_passwords(desk: Desk) -> None:
    desk.way.may_be_closed = True
    for number in range(12):
        assert log_in_by_scram(desk, "alice", f"guess-{number}").error_code == Code.SASL_AUTHENTICATION_FAILED
        desk.let_pass(5_000)
    assert desk.core.authenticator._logins.is_delayed("alice", desk.caller.address)
