"""Every gRPC method with every right: what is refused, that a refusal changes nothing, and the audit record of each."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import pytest
from protocols.rocketmq.grpc.grpc_desk import GrpcDesk, Phone, message
from protocols.rocketmq.test_logins import SECRET
from security.rights_cells import (
    GROUP,
    SINGLES,
    TOPIC,
    USERS,
    AuditRecords,
    Need,
    Ways,
    all_of,
    audited,
    is_allowed,
    set_entries,
)

from trimq.core.metadata.catalogue import Definition
from trimq.core.security.resources import Action
from trimq.model import SYSTEM
from trimq.protocols.rocketmq.grpc.clients.message_view import set_ms
from trimq.protocols.rocketmq.grpc.front_end import METHODS
from trimq.protocols.rocketmq.grpc.wire import wire
from trimq.protocols.rocketmq.grpc.wire.codes import GrpcStatusError
from trimq.protocols.rocketmq.grpc.wire.enums import ClientType, Code

READ, WRITE, DESCRIBE = Action.READ, Action.WRITE, Action.DESCRIBE
_T, _G = wire.Resource(name="t"), wire.Resource(name="g")


class Row(NamedTuple):
    """`fields`: makes the fields of the request. `settings`: of the client that sends it."""

    method: str
    ways: Ways
    fields: Callable[[], dict[str, Any]]
    case: str = ""

    @property
    def id(self) -> str:
        return f"{self.method} {self.case}".strip().replace(" ", "-")


def _receiving() -> dict[str, Any]:
    request = wire.ReceiveMessageRequest(
        group=_G,
        message_queue=wire.MessageQueue(topic=_T),
        filter_expression=wire.FilterExpression(type=1, expression="*"),
        batch_size=1,
    )
    set_ms(request.invisible_duration, 10_000)
    return {descriptor.name: value for descriptor, value in request.ListFields()}


def _changed() -> dict[str, Any]:
    request = wire.ChangeInvisibleDurationRequest(group=_G, topic=_T, receipt_handle=_HANDLE, message_id="m")
    set_ms(request.invisible_duration, 10_000)
    return {descriptor.name: value for descriptor, value in request.ListFields()}


_HANDLE = "0 1700000000000 60000 0 0 broker-a 0 0"
_ENTRY = wire.AckMessageEntry(message_id="m", receipt_handle=_HANDLE)
_PRODUCING = wire.Settings(client_type=ClientType.PRODUCER, publishing=wire.Publishing(topics=[_T]))
_CONSUMING = wire.Settings(
    client_type=ClientType.SIMPLE_CONSUMER,
    subscription=wire.Subscription(
        group=_G,
        subscriptions=[wire.SubscriptionEntry(topic=_T, expression=wire.FilterExpression(type=1, expression="*"))],
    ),
)
_ENDPOINTS = wire.Endpoints(scheme=1, addresses=[wire.Address(host="127.0.0.1", port=8081)])
TELEMETRY: dict[str, tuple[Any, Ways]] = {
    "Telemetry-producing": (_PRODUCING, all_of((WRITE, TOPIC))),
    "Telemetry-consuming": (_CONSUMING, all_of((READ, GROUP))),
}

ROWS = (
    Row("QueryRoute", all_of((DESCRIBE, TOPIC)), lambda: {"topic": _T, "endpoints": _ENDPOINTS}),
    Row("QueryAssignment", all_of((DESCRIBE, TOPIC), (READ, GROUP)),
        lambda: {"topic": _T, "group": _G, "endpoints": _ENDPOINTS}),
    Row("SendMessage", all_of((WRITE, TOPIC)), lambda: {"messages": [message("t")]}),
    Row("ReceiveMessage", all_of((READ, TOPIC), (READ, GROUP)), _receiving),
    Row("AckMessage", all_of((READ, TOPIC), (READ, GROUP)),
        lambda: {"group": _G, "topic": _T, "entries": [_ENTRY]}),
    Row("ChangeInvisibleDuration", all_of((READ, TOPIC), (READ, GROUP)), _changed),
    Row("ForwardMessageToDeadLetterQueue", all_of((READ, TOPIC), (READ, GROUP)),
        lambda: {"group": _G, "topic": _T, "receipt_handle": _HANDLE, "message_id": "m", "delivery_attempt": 1,
                 "max_delivery_attempts": 1}),
    Row("EndTransaction", all_of((WRITE, TOPIC)),
        lambda: {"topic": _T, "message_id": "m", "transaction_id": "x", "resolution": 1}),
    Row("RecallMessage", all_of((WRITE, TOPIC)), lambda: {"topic": _T, "recall_handle": "x"}),
    Row("Heartbeat", all_of((READ, GROUP)), lambda: {"group": _G, "client_type": ClientType.SIMPLE_CONSUMER}),
    Row("NotifyClientTermination", USERS, lambda: {"group": _G}),
)  # fmt: skip


class World:
    """A broker with the topic `t` and the group `g`. Clients of each user have registered as consumers."""

    def __init__(self) -> None:
        self.grpc = GrpcDesk()
        self.desk = self.grpc.desk
        self.grpc.make_topic("t")
        self.grpc.make_group("g")
        users = self.desk.core.broker.users
        for name in ("root", "alice"):
            users.define(SYSTEM, name, f"{name}'s", name == "root", lambda ticket: None, secret=f"{SECRET} of {name}")
            self.desk.runner.settle()
        users.remove(SYSTEM, "guest")
        self.access = self.desk.core.broker._access
        self.set_entries(SINGLES)

    def set_entries(self, allowed: Iterable[Need], denied: Iterable[Need] = ()) -> None:
        set_entries(self.access, allowed, denied)
        self.desk.runner.settle()

    def phone(self, user: str, name: str = "") -> Phone:
        metadata = {}
        if user != "anonymous":
            time = "20231114T221320Z"
            digest = hmac.digest(f"{SECRET} of {user}".encode(), time.encode(), hashlib.sha1).hex()
            header = f"MQv2-HMAC-SHA1 Credential={user}, SignedHeaders=x-mq-date-time, Signature={digest}"
            metadata = {"authorization": header, "x-mq-date-time": time}
        phone = self.grpc.client(name or user)
        phone.metadata.update(metadata)
        return phone

    def register(self, user: str) -> None:
        """Makes the client of this user known, as its telemetry stream does."""
        if user != "anonymous":
            self.set_entries(SINGLES)
            self.phone(user).tell(_CONSUMING)

    def state(self) -> dict[str, Any]:
        """Everything that a call could change, except entries."""
        kinds: dict[str, dict[str, Definition]] = self.access._users._catalogue._kinds
        core = self.desk.core
        assert core.commit_log_service is not None
        return {
            "definitions": {kind: dict(found) for kind, found in kinds.items() if kind != "acl"},
            "log": core.commit_log_service.commit_log.lookup.log_ends(),
            "cursors": dict(core.cursors.all("g")),
        }

    def is_refused(self, row: Row, user: str) -> bool:
        """Returns whether the call was refused, after checking that nothing was changed."""
        before = self.state()
        phone = self.phone(user)
        reply = phone.begin(row.method, METHODS[row.method].request(**row.fields()))
        if not self.desk.is_ready(reply):
            assert reply.on_resolve_now is not None
            reply.on_resolve_now()
        answers = phone.take(row.method, reply)
        refused = Code.FORBIDDEN in _codes(answers)
        if refused:
            assert self.state() == before
        return refused

    def is_settings_refused(self, settings: Any, user: str) -> bool:
        before = self.state()
        phone = self.phone(user, f"{user}-tells")
        try:
            phone.tell(settings)
        except GrpcStatusError as refusal:
            status = refusal.status
        else:
            return False
        assert (status, self.state()) == ("PERMISSION_DENIED", before)
        return True


def _codes(answers: list[Any]) -> set[int]:
    found = set()
    for answer in answers:
        fields = answer.DESCRIPTOR.fields_by_name
        if "status" in fields:
            found.add(answer.status.code)
        found |= {entry.status.code for entry in answer.entries} if "entries" in fields else set()
    return found


@pytest.fixture(scope="module")
def world() -> World:
    return World()


@pytest.fixture
def audit() -> Iterator[AuditRecords]:
    with audited() as records:
        yield records


def test_every_method_has_a_row() -> None:
    assert {row.method for row in ROWS} == METHODS.keys()


def check_record(audit: AuditRecords, principal: str, about: str) -> None:
    (record,) = audit.take("refused")
    assert (record["principal"], record["protocol"]) == (principal, "rocketmq-grpc"), about


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
def test_a_call_is_allowed_by_exactly_the_rights_that_its_row_names(
    world: World, audit: AuditRecords, row: Row
) -> None:
    for granted in ([], *([single] for single in SINGLES), *row.ways):
        world.register("alice")
        world.set_entries(granted)
        audit.take("")
        refused = world.is_refused(row, "alice")
        told = f"{row.id} was {'refused' if refused else 'allowed'} to a user with {granted}"
        assert refused is not is_allowed(row.ways, granted), told
        if refused:
            check_record(audit, "alice", told)
    world.set_entries([])
    assert world.is_refused(row, "anonymous")
    check_record(audit, "anonymous", row.id)
    world.register("root")
    assert not world.is_refused(row, "root")


@pytest.mark.parametrize("row", [row for row in ROWS if any(row.ways)], ids=lambda row: row.id)
def test_a_denial_beats_everything_that_allows(world: World, row: Row) -> None:
    for need in {need for way in row.ways for need in way}:
        world.register("alice")
        world.set_entries(SINGLES, [need])
        assert world.is_refused(row, "alice"), f"{row.id} was allowed in spite of a denial of {need}"


@pytest.mark.parametrize("case", TELEMETRY)
def test_settings_are_accepted_by_exactly_the_rights_that_they_need(
    world: World, audit: AuditRecords, case: str
) -> None:
    settings, ways = TELEMETRY[case]
    for granted in ([], *([single] for single in SINGLES), *ways):
        world.set_entries(granted)
        audit.take("")
        refused = world.is_settings_refused(settings, "alice")
        told = f"{case} was {'refused' if refused else 'accepted'} of a user with {granted}"
        assert refused is not is_allowed(ways, granted), told
        if refused:
            check_record(audit, "alice", told)
    assert world.is_settings_refused(settings, "anonymous")
    assert not world.is_settings_refused(settings, "root")


def test_nobody_ends_or_acts_for_the_client_of_another_user(world: World) -> None:
    world.register("root")
    world.set_entries(SINGLES)
    for method in ("NotifyClientTermination", "Heartbeat"):
        phone = world.phone("alice", "root")
        answer = phone.call(method, group=_G)
        assert answer.status.code == Code.FORBIDDEN
