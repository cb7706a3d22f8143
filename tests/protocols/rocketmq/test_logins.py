"""Logins of RocketMQ clients: signed commands and signed gRPC calls act as their user, all others as `anonymous`."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import struct
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from protocols.rocketmq.grpc.grpc_desk import GrpcDesk
from protocols.rocketmq.handlers.test_register_broker import TOPICS, body_of
from protocols.rocketmq.rocketmq_desk import NOW_MS, Desk, Peer, receive, request

from trimq.core.security.access import Right
from trimq.model import SYSTEM
from trimq.protocols.rocketmq.grpc.wire import wire
from trimq.protocols.rocketmq.grpc.wire.codes import GrpcStatusError
from trimq.protocols.rocketmq.grpc.wire.enums import Code
from trimq.protocols.rocketmq.handlers.send_batch import SendBatcher
from trimq.protocols.rocketmq.wire.codes import ResponseCode
from trimq.protocols.rocketmq.wire.signatures import BadSignature, read_authorization, read_signed
from trimq.wire.remoting import BadHeader, Command, RemotingConnection

SUCCESS, NO_PERMISSION = ResponseCode.SUCCESS, ResponseCode.NO_PERMISSION
SECRET = "planted-secret"


def guarded(desk: Desk) -> Desk:
    users = desk.core.broker.users
    for name, is_administrator in (("root", True), ("alice", False), ("bob", False)):
        users.define(SYSTEM, name, f"{name}'s", is_administrator, lambda ticket: None, secret=f"{SECRET} of {name}")
        desk.runner.settle()
    users.remove(SYSTEM, "guest")
    users.grant(SYSTEM, Right("alice", "", "^t$", "^(t|pg)$", "^(t|g)$"))
    desk.runner.settle()
    return desk


def signature(fields: dict[str, Any], body: bytes, secret: str) -> str:
    """What Apache RocketMQ's AclClientRPCHook adds to a request."""
    content = "".join(str(fields[name]) for name in sorted(fields)).encode() + body
    return base64.b64encode(hmac.digest(secret.encode(), content, hashlib.sha1)).decode()


class Signed:
    """A connection that signs its commands."""

    def __init__(self, peer: Peer, user: str = "alice", secret: str | None = None, token: str = "") -> None:
        self._peer = peer
        self._keys = {"AccessKey": user, **({"SecurityToken": token} if token else {})}
        self._secret = f"{SECRET} of {user}" if secret is None else secret

    def ask(self, code: int, fields: dict[str, Any], body: bytes = b"") -> Command:
        signed = {**fields, **self._keys}
        return self._peer.ask(code, {**signed, "Signature": signature(signed, body, self._secret)}, body)

    def send(self, topic: str = "t", body: bytes = b"hello") -> Command:
        given = {"a": "pg", "b": topic, "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 77, "h": 0, "i": "KEYS\x01k\x02"}
        return self.ask(310, given, body)


def test_a_signed_command_is_that_of_its_user_and_an_unsigned_one_of_nobody() -> None:
    desk = guarded(Desk())
    assert Signed(desk.broker, "root").send("t").code == SUCCESS
    for peer in (desk.broker, desk.connect()):
        assert Signed(peer).send("t").code == SUCCESS
        assert Signed(peer).send("other").code == NO_PERMISSION
        assert peer.send("t").code == NO_PERMISSION
        assert Signed(peer, token="st").send("t").code == SUCCESS
        assert Signed(peer, "bob").send("t").code == NO_PERMISSION
    assert Signed(desk.names).ask(105, {"topic": "t"}).code == SUCCESS
    assert desk.names.ask(105, {"topic": "t"}).code == NO_PERMISSION
    assert Signed(desk.connect(desk.doors.vip())).send("t").code == SUCCESS


@pytest.mark.parametrize(
    ("user", "secret"),
    [("alice", f"{SECRET} of bob"), ("alice", "alice's"), ("alice", ""), ("nobody", "x"), ("anonymous", "x")],
)
def test_wrong_signatures_cannot_be_told_apart(user: str, secret: str, caplog: pytest.LogCaptureFixture) -> None:
    desk = guarded(Desk())
    answer = Signed(desk.broker, user, secret).send("t")
    assert (answer.code, answer.remark) == (NO_PERMISSION, "check signature failed.")
    page = desk.metrics.render().decode()
    assert 'trimq_logins_total{protocol="rocketmq",result="failure"} 1' in page
    assert f"rocketmq login of user '{user}' from 10.0.0.1:5000 with HMAC-SHA1 failed" in caplog.text
    assert SECRET not in caplog.text


def frames(*commands: tuple[str, str, bytes]) -> bytes:
    """Sends of these users to these topics, one after the other."""
    found = b""
    for user, topic, text in commands:
        fields: dict[str, Any] = {"a": "pg", "b": topic, "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 77, "h": 0}
        fields["i"] = f"UNIQ_KEY\x01{len(found):032X}\x02"
        signed = {**fields, "AccessKey": user} if user else fields
        signed |= {"Signature": signature(signed, text, f"{SECRET} of {user}")} if user else {}
        found += request(310, signed, text, 0, 479)
    return found


def test_signed_messages_that_arrive_together_are_stored_together_for_their_users() -> None:
    desk = guarded(Desk())
    assert Signed(desk.broker, "root").send("t").code == SUCCESS
    conversation = desk.connect().conversation
    sent = [("alice", "t", b"1"), ("alice", "t", b"2"), ("root", "t", b"3"), ("bob", "t", b"4"), ("", "t", b"5")]
    for _ in receive(conversation, frames(*sent, ("alice", "t", b"6"), ("alice", "t", b"7"))):
        pass
    batches, codes = [], []
    while (event := conversation.next_event()) is not None:
        batches.append(len(event.asked) if isinstance(event, SendBatcher) else None)
        reply = conversation.handle(event)
        assert reply is not None
        desk.runner.settle()
        connection = RemotingConnection()
        connection.receive(b"".join(reply.take()))
        while (answer := connection.next_event()) is not None:
            codes.append(answer.code)
    assert batches == [2, 1, 1, None, 2]
    assert codes == [SUCCESS, SUCCESS, SUCCESS, NO_PERMISSION, NO_PERMISSION, SUCCESS, SUCCESS]


def test_a_changed_command_has_a_wrong_signature() -> None:
    desk = guarded(Desk())
    fields = {"topic": "t", "queueId": 0, "AccessKey": "alice"}
    signed = {**fields, "Signature": signature(fields, b"", f"{SECRET} of alice")}
    Signed(desk.broker, "root").send("t")
    assert desk.broker.ask(30, signed).code == SUCCESS
    assert desk.broker.ask(30, {**signed, "queueId": 1}).code == NO_PERMISSION
    assert desk.broker.ask(30, signed, b"more").code == NO_PERMISSION
    assert desk.broker.ask(30, {**signed, "extra": 1}).code == NO_PERMISSION
    for wrong in ("", "***", "AAAA", None):
        assert desk.broker.ask(30, {**signed, "Signature": wrong}).code == NO_PERMISSION


def test_a_secret_that_is_taken_away_or_replaced_ends_at_once() -> None:
    desk = guarded(Desk())
    alice, users = Signed(desk.broker), desk.core.broker.users
    assert Signed(desk.broker, "root").send("t").code == SUCCESS
    assert alice.send().code == SUCCESS
    users.define(SYSTEM, "alice", None, None, lambda ticket: None, secret="")
    assert alice.send().code == NO_PERMISSION
    users.define(SYSTEM, "alice", None, None, lambda ticket: None, secret="new")
    desk.runner.settle()
    assert alice.send().code == NO_PERMISSION
    assert Signed(desk.broker, secret="new").send().code == SUCCESS
    users.remove(SYSTEM, "alice")
    assert Signed(desk.broker, secret="new").send().code == NO_PERMISSION
    assert desk.core.credentials.secrets.users() == ["root", "bob"]


def test_without_users_signatures_are_ignored() -> None:
    desk = Desk()
    assert Signed(desk.broker, "nobody").send().code == SUCCESS


def test_the_empty_key_of_the_cpp_client_is_no_key() -> None:
    desk = Desk()
    keys = {"AccessKey": "", "Signature": "x", "OnsChannel": "ALIYUN"}
    assert desk.broker.send("t", **keys).code == SUCCESS
    guarded(desk)
    answer = desk.broker.send("t", **keys)
    assert (answer.code, answer.remark) == (NO_PERMISSION, "anonymous may not describe broker trimq")


def test_old_clients_add_a_field_to_queries_after_they_have_signed_them() -> None:
    desk = guarded(Desk())
    Signed(desk.broker, "root").send("t")
    fields = {"topic": "t", "key": "k", "maxNum": 1, "beginTimestamp": 0, "endTimestamp": NOW_MS, "AccessKey": "alice"}
    signed = {**fields, "_UNIQUE_KEY_QUERY": "true", "Signature": signature(fields, b"", f"{SECRET} of alice")}
    assert desk.broker.ask(12, signed, version=399).code != NO_PERMISSION
    assert desk.broker.ask(12, signed, version=401).code == NO_PERMISSION


def of_broker(peer: Any, address: str) -> int:
    body = body_of(TOPICS)
    fields = {"brokerName": "other", "brokerAddr": address, "clusterName": "c", "brokerId": 0}
    code: int = peer.ask(103, fields, body).code
    return code


def test_brokers_register_if_they_are_allowed_or_administrators() -> None:
    desk = guarded(Desk(allowed_brokers="10.0.0.1:10911; 10.0.0.2:10911"))
    assert of_broker(desk.names, "10.0.0.1:10911") == SUCCESS
    assert of_broker(desk.names, "10.0.0.1:10912") == NO_PERMISSION
    assert of_broker(desk.names, "10.0.0.2:10911") == NO_PERMISSION  # connects from another host
    assert of_broker(Signed(desk.names), "10.0.0.3:10911") == NO_PERMISSION
    assert of_broker(Signed(desk.names, "root"), "10.0.0.3:10911") == SUCCESS
    place = {"brokerName": "other", "brokerAddr": "10.0.0.1:10911", "clusterName": "c"}
    assert desk.names.ask(904, place).code == SUCCESS
    assert desk.names.ask(904, {**place, "brokerAddr": "10.0.0.3:10911"}).code == NO_PERMISSION
    assert desk.names.ask(104, {**place, "brokerId": 0}).code == SUCCESS


def test_without_users_a_list_of_allowed_brokers_is_kept_too() -> None:
    desk = Desk(allowed_brokers="10.0.0.1:10911")
    assert of_broker(desk.names, "10.0.0.1:10911") == SUCCESS
    assert of_broker(desk.names, "203.0.113.9:10911") == NO_PERMISSION
    assert of_broker(Desk().names, "203.0.113.9:10911") == SUCCESS


# --- users ------------------------------------------------------------------------------------------------------------


def body(**fields: Any) -> bytes:
    return json.dumps(fields).encode()


def test_administrators_create_change_list_and_delete_users() -> None:
    desk = guarded(Desk())
    root = Signed(desk.broker, "root")
    new = body(username="carol", password="hers", userType="Normal", userStatus="enable")
    assert root.ask(3001, {"username": "carol"}, new).code == SUCCESS
    answer = root.ask(3004, {"username": "carol"})
    assert json.loads(answer.body) == {"username": "carol", "userType": "Normal", "userStatus": "enable"}
    listed = json.loads(root.ask(3005, {"filter": "o"}).body)
    assert [(user["username"], user["userType"]) for user in listed] == [
        ("root", "Super"),
        ("bob", "Normal"),
        ("carol", "Normal"),
    ]
    carol = Signed(desk.broker, "carol", "hers")
    assert carol.ask(3005, {}).code == NO_PERMISSION
    assert root.ask(3002, {"username": "carol"}, body(userType="Super", password="new")).code == SUCCESS
    assert carol.ask(3005, {}).code == NO_PERMISSION
    assert Signed(desk.broker, "carol", "new").ask(3005, {}).code == SUCCESS
    assert desk.core.broker._access.verify("carol", "new")
    assert root.ask(3003, {"username": "carol"}).code == SUCCESS
    assert Signed(desk.broker, "carol", "new").ask(3005, {}).code == NO_PERMISSION
    assert root.ask(3004, {"username": "carol"}).body == b"null"


@pytest.mark.parametrize(
    ("code", "name", "asked"),
    [
        (3001, "", {"password": "x"}),
        (3001, "carol", {}),
        (3001, "carol", {"password": 7}),
        (3001, "carol", {"password": "x", "userType": "Half"}),
        (3001, "carol", {"password": "x", "userStatus": "disable"}),
        (3001, "carol", {"password": "x" * 257}),
        (3001, "alice", {"password": "x"}),
        (3002, "carol", {"password": "x"}),
        (3003, "carol", {}),
        (3003, "root", {}),
    ],
)
def test_a_user_that_is_not_one_is_refused(code: int, name: str, asked: dict[str, Any]) -> None:
    desk = guarded(Desk())
    answer = Signed(desk.broker, "root").ask(code, {"username": name}, body(**asked))
    assert answer.code in (NO_PERMISSION, ResponseCode.INVALID_PARAMETER)
    assert {user.name for user in desk.core.broker.users.all(SYSTEM)} == {"root", "alice", "bob"}


# --- gRPC -------------------------------------------------------------------------------------------------------------


def authorized(phone: Any, user: str = "alice", time: str = "20231114T221320Z", **changes: str) -> None:
    digest = hmac.digest(f"{SECRET} of {user}".encode(), time.encode(), hashlib.sha1).hex()
    header = f"MQv2-HMAC-SHA1 Credential={user}, SignedHeaders=x-mq-date-time, Signature={changes.get('hex', digest)}"
    phone.metadata = {**phone.metadata, "authorization": changes.get("header", header), "x-mq-date-time": time}


@pytest.fixture
def phones() -> GrpcDesk:
    desk = GrpcDesk()
    desk.desk.broker.send("t")
    guarded(desk.desk)
    return desk


def queried(phone: Any, topic: str = "t") -> Code:
    code: Code = phone.call("QueryRoute", topic=wire.Resource(name=topic)).status.code
    return code


def test_a_signed_call_is_that_of_its_user(phones: GrpcDesk) -> None:
    phone = phones.client()
    assert queried(phone) == Code.FORBIDDEN
    authorized(phone)
    assert queried(phone) == Code.OK
    assert queried(phone, "other") == Code.FORBIDDEN
    phone.produce("t")
    authorized(phone, "bob")
    assert queried(phone) == Code.FORBIDDEN
    page = phones.desk.metrics.render().decode()
    assert 'trimq_logins_total{protocol="rocketmq-grpc",result="success"} 1' in page


@pytest.mark.parametrize(
    "changes",
    [
        {"hex": "00" * 20},
        {"hex": "xyz"},
        {"user": "nobody"},
        {"header": "Basic YWxpY2U6YQ=="},
        {"header": "MQv2-HMAC-SHA1 Credential"},
        {"header": "MQv2-HMAC-SHA1 Signature=00"},
    ],
)
def test_a_call_with_a_wrong_signature_is_refused(phones: GrpcDesk, changes: dict[str, str]) -> None:
    phone = phones.client()
    authorized(phone, **changes)
    assert queried(phone) == Code.UNAUTHORIZED
    with pytest.raises(GrpcStatusError) as refused:
        phone.produce("t")
    assert refused.value.status == "UNAUTHENTICATED"


def test_a_call_ends_with_the_secret_although_its_headers_are_the_same(phones: GrpcDesk) -> None:
    phone = phones.client()
    authorized(phone)
    info = phone.call_info()
    request = wire.QueryRouteRequest(topic=wire.Resource(name="t")).SerializeToString()

    def code() -> Code:
        reply = phones.front_end.call("QueryRoute", info, request)
        found: Code = phone.take("QueryRoute", reply)[0].status.code
        return found

    assert code() == Code.OK
    phones.desk.core.broker.users.define(SYSTEM, "alice", None, None, lambda ticket: None, secret="")
    assert code() == Code.UNAUTHORIZED


@pytest.mark.parametrize(
    ("time", "expected"),
    [
        ("20231114T221320Z", Code.OK),
        ("20231114T221420Z", Code.OK),
        ("20231114T221421Z", Code.UNAUTHORIZED),
        ("20231114T221219Z", Code.UNAUTHORIZED),
        ("soon", Code.UNAUTHORIZED),
    ],
)
def test_a_signed_time_must_be_in_the_window(time: str, expected: Code) -> None:
    desk = GrpcDesk(signature_window_ms=60_000)
    desk.desk.broker.send("t")
    guarded(desk.desk)
    phone = desk.client()
    authorized(phone, time=time)
    assert queried(phone) == expected


def test_a_signature_may_be_in_either_case_and_a_credential_may_have_a_scope() -> None:
    expected = ("alice", bytes(range(250, 255)))
    for header in (
        "MQv2-HMAC-SHA1 Credential=alice, SignedHeaders=x-mq-date-time, Signature=FAFBFCFDFE",
        "MQv2-HMAC-SHA1 Credential=alice/region/service/request,SignedHeaders=x-mq-date-time,Signature=fafbfcfdfe",
    ):
        assert read_authorization(header) == expected


@given(st.text(max_size=100) | st.text("MQv2-HMACS1 Credntial=,gu/0f", max_size=60).map("MQv2-HMAC-SHA1 {}".format))
def test_any_authorization_is_read_or_refused(header: str) -> None:
    with suppress(BadSignature):
        read_authorization(header)


@given(st.dictionaries(st.sampled_from(["AccessKey", "Signature", "b", "a"]), st.text(max_size=20)), st.binary())
def test_any_fields_are_read_or_refused(fields: dict[str, str], body: bytes) -> None:
    text = json.dumps(fields).encode()
    frame = struct.pack(">iI", 4 + len(text) + len(body), len(text)) + text + body
    assert frame
    with suppress(BadSignature, BadHeader):
        signed = read_signed(Command(310, 1, 0, 500, "JAVA", None, body, _fields=fields))
        assert signed is None or signed.content.endswith(body)
