"""Every Kafka API with every right: what is refused, with which code, and that a refusal changes nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import product
from typing import Any

import pytest
from protocols.kafka.desk import Desk
from protocols.kafka.rights_matrix import (
    CLUSTER,
    CODES,
    CONFIGURE,
    LOGIN,
    NAMES,
    OPERATIONS,
    ROWS,
    TOPIC,
    TYPES,
    Need,
    Row,
    build,
    error_codes,
    holds,
    names,
)
from security.rights_cells import audited

from trimq.config import Log
from trimq.core.metadata.catalogue import Definition
from trimq.core.security.passwords import hash_password
from trimq.core.security.rights import Right
from trimq.core.security.users import User
from trimq.formats.kafka_batch.builder import from_records
from trimq.model import Record
from trimq.protocols.kafka.handlers import HANDLERS
from trimq.protocols.kafka.messages.acls import AclCreation, CreateAclsRequest, DeleteAclsFilter, DeleteAclsRequest
from trimq.protocols.kafka.messages.group_offsets import OffsetCommitRequest
from trimq.protocols.kafka.messages.transactions import InitProducerIdRequest
from trimq.protocols.kafka.wire.apis import APIS

ALLOW, DENY = 3, 2
KINDS = tuple(NAMES)
HASHES = {name: hash_password(f"{name}'s", b"salt" * 4) for name in ("root", "alice")}
_EVERYTHING = {
    **dict.fromkeys(("resource_type_filter", "pattern_type_filter", "operation", "permission_type"), 1),
    **dict.fromkeys(("resource_name_filter", "principal_filter", "host_filter")),
}


class World:
    """A broker with a topic, a group, a transactional id, an administrator `root` and a user `alice`."""

    def __init__(self) -> None:
        self.desk = Desk(log=Log(audit_per_minute=0))
        access = self.desk.core.broker.users._access
        for name, hashed in HASHES.items():
            access.put_user(User(name, hashed, is_administrator=name == "root"))
        self.desk.runner.settle()
        self.access = access
        self.prepare("topic")
        self.prepare("group")
        self._ask_as("root", InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=1000))

    def prepare(self, what: str) -> None:
        self.desk.speak_as("root")
        if what == "topic":
            assert self.desk.create("orders").error_code in (0, 36)
            assert self.desk.produce("orders", bytearray(from_records([Record(b"0")]))).error_code == 0
        if what in ("topic", "group"):
            offset = {"committed_offset": 1, "partition_index": 0, "committed_metadata": ""}
            topics = [{"name": "orders", "partitions": [offset]}]
            self.desk.ask(build(OffsetCommitRequest, {"group_id": "billing", "topics": topics}), 9)

    def _ask_as(self, user: str, message: Any, version: int | None = None) -> Any:
        self.desk.speak_as(user)
        return self.desk.ask(message, version)

    def set_entries(self, allowed: Iterable[Need], denied: Iterable[Need] = ()) -> None:
        """Replaces alice's entries, over the wire. Denials are those of all names."""
        self._ask_as("root", DeleteAclsRequest(filters=[DeleteAclsFilter(**_EVERYTHING)]))
        creations = [
            AclCreation(
                resource_type=TYPES[kind],
                resource_name="*" if permission == DENY and kind != CLUSTER else NAMES[kind],
                principal="User:alice",
                host="*",
                operation=OPERATIONS[operation],
                permission_type=permission,
            )
            for needs, permission in ((allowed, ALLOW), (denied, DENY))
            for operation, kind in needs
        ]
        results = self._ask_as("root", CreateAclsRequest(creations=creations)).results
        assert not any(result.error_code for result in results)

    def set_permission(self, right: Right | None) -> None:
        self.access.revoke("alice", "")
        if right is not None:
            self.access.grant(right)
        self.desk.runner.settle()

    def state(self) -> dict[str, Any]:
        """Everything that a request could change, except entries."""
        core = self.desk.core
        kinds: dict[str, dict[str, Definition]] = self.access._users._catalogue._kinds
        return {
            "definitions": {kind: dict(found) for kind, found in kinds.items() if kind != "acl"},
            "ends": {str(topic.name): [(s.start, s.end) for s in topic.streams] for topic in core.topics},
            "cursors": dict(core.cursors.all("billing")),
            "transactions": [(name, known) for name, known in core.transactions.all()],
        }

    def is_refused(self, row: Row, user: str) -> set[int] | None:
        """Returns the codes of a refusal, after checking that nothing was changed; None if it was allowed."""
        before = self.state()
        with audited() as audit:
            response = self._ask_as(user, row.request(), row.version)
            records = audit.take("refused")
        refused = error_codes(response) & set(CODES.values())
        if row.seen:
            assert not refused
            refused = set() if row.seen in names(response) else {0}
        if not refused:
            if row.restore:
                self.prepare(row.restore)
            return None
        assert self.state() == before
        if not row.seen:
            (record,) = {(record["principal"], record["protocol"]): record for record in records}.values()
            assert (record["principal"], record["protocol"]) == (user, "kafka"), row.id
            assert len(records) == 1, (row.id, records)
        return refused


@pytest.fixture(scope="module")
def world() -> World:
    return World()


def is_allowed(row: Row, granted: Iterable[Need]) -> bool:
    given = list(granted)
    return any(all(any(holds(one, need) for one in given) for need in way) for way in row.ways)


def codes_of_missing(row: Row, granted: Iterable[Need]) -> set[int]:
    """Returns the codes that name what is missing."""
    if row.seen:
        return {0}
    given = list(granted)
    missing = {kind for way in row.ways for op, kind in way if not any(holds(one, (op, kind)) for one in given)}
    return {CODES[kind] for kind in missing} or {CODES["cluster"]}


def check(world: World, row: Row, user: str, granted: Iterable[Need], about: str) -> None:
    refused = world.is_refused(row, user)
    if is_allowed(row, granted):
        assert refused is None, f"{row.id} was refused with {refused} to {about}"
    else:
        assert refused is not None, f"{row.id} was allowed to {about}"
        assert refused <= codes_of_missing(row, granted), f"{row.id} was refused with {refused} to {about}"


def test_every_api_has_a_row() -> None:
    served = {APIS[key].name for key in HANDLERS}
    assert {row.api for row in ROWS} == served - set(LOGIN)


def ids(row: Row) -> str:
    return row.id.replace(" ", "-")


def singles() -> Iterator[Need]:
    yield from product(OPERATIONS, KINDS)


@pytest.mark.parametrize("row", ROWS, ids=ids)
def test_a_request_is_allowed_by_exactly_the_rights_that_its_row_names(world: World, row: Row) -> None:
    world.set_permission(None)
    world.set_entries([])
    check(world, row, "anonymous", [], "a client that did not log in")
    check(world, row, "alice", [], "a user without a right")
    for single in singles():
        world.set_entries([single])
        check(world, row, "alice", [single], f"a user who may {single}")
    for way in row.ways:
        world.set_entries(way)
        check(world, row, "alice", way, "a user with all rights")
    world.set_entries([])
    assert world.is_refused(row, "root") is None


@pytest.mark.parametrize("row", [row for row in ROWS if any(row.ways)], ids=ids)
def test_a_denial_beats_everything_that_allows(world: World, row: Row) -> None:
    world.set_permission(Right("alice", "", ".*", ".*", ".*"))
    everything = list(singles())
    needs = {need for way in row.ways for need in way}
    for need in needs if len(row.ways) == 1 else ():
        world.set_entries(everything, [need])
        left = [granted for granted in everything if granted[1] != need[1]]
        refused = world.is_refused(row, "alice")
        assert refused is not None, f"{row.id} was allowed in spite of a denial of {need}"
        assert refused <= codes_of_missing(row, left)
    world.set_entries(everything, needs)
    assert world.is_refused(row, "alice") is not None
    assert world.is_refused(row, "root") is None
    world.set_permission(None)


@pytest.mark.parametrize("row", ROWS, ids=ids)
@pytest.mark.parametrize("field", ["configure", "write", "read"])
def test_a_permission_of_rabbitmq_allows_what_its_pattern_is_for(world: World, row: Row, field: str) -> None:
    world.set_entries([])
    world.set_permission(Right("alice", "", **{field: "^(orders|billing|tx)$"}))
    operations = {"configure": CONFIGURE, "write": {"WRITE"}, "read": {"READ"}}[field]
    operations = operations | {"DESCRIBE", "DESCRIBE_CONFIGS"}
    granted = [(operation, kind) for operation in operations for kind in KINDS if kind != "cluster"]
    check(world, row, "alice", granted, f"a user with the permission {field}")
    world.set_permission(None)


def test_names_that_the_caller_may_not_see_are_told_apart_by_no_answer(world: World) -> None:
    """An unknown topic is answered as one that the caller may not see."""
    world.set_permission(None)
    world.set_entries([])
    world.desk.speak_as("alice")
    codes = [
        (world.desk.produce(name, bytearray(from_records([Record(b"1")]))).error_code, name)
        for name in ("orders", "nothing")
    ]
    assert codes == [(CODES[TOPIC], "orders"), (CODES[TOPIC], "nothing")]
