"""Every RocketMQ request with every right: what is refused, that a refusal changes nothing, and the audit record of
each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import pytest
from security.rights_cells import (
    ADMINISTRATORS,
    CLUSTER,
    GROUP,
    PERMISSIONS,
    SINGLES,
    TOPIC,
    USERS,
    AuditRecords,
    Need,
    Ways,
    all_of,
    audited,
    is_allowed,
    needs_of_permission,
    set_entries,
    set_permission,
)
from security.rocketmq_world import NO_PERMISSION, World

from trimq.core.security.resources import Action
from trimq.protocols.rocketmq.handlers.tables import BROKER, NAME_SERVER

READ, WRITE, DELETE, ALTER, DESCRIBE = Action.READ, Action.WRITE, Action.DELETE, Action.ALTER, Action.DESCRIBE

_MEMBER = all_of((READ, TOPIC), (READ, GROUP))
_WRITER = all_of((WRITE, TOPIC))
_OF_GROUP = all_of((READ, GROUP))
_SEES_TOPIC = all_of((DESCRIBE, TOPIC))
_SEES_GROUP = all_of((DESCRIBE, GROUP))
_SEES_BOTH = all_of((DESCRIBE, TOPIC), (DESCRIBE, GROUP))

AT_BROKER: dict[int, Ways] = {
    **dict.fromkeys((10, 310, 320, 324, 325, 370), _WRITER),
    # Transactions need what their messages needed; the topic is that of the half message.
    37: _WRITER,
    **dict.fromkeys((11, 361, 200050, 200051, 200052, 200053, 200054, 200151, 309), _MEMBER),
    **dict.fromkeys((15, 222), _MEMBER),
    36: all_of((READ, TOPIC), (WRITE, TOPIC), (READ, GROUP)),
    **dict.fromkeys((12, 33), all_of((READ, TOPIC))),
    **dict.fromkeys((29, 30, 31, 32, 202, 300, 308, 315, 351), _SEES_TOPIC),
    **dict.fromkeys((38, 203, 204, 343, 345), _SEES_GROUP),
    **dict.fromkeys((14, 208, 303, 321), _SEES_BOTH),
    **dict.fromkeys((34, 223, 400), all_of((DESCRIBE, TOPIC), (READ, GROUP))),
    200055: all_of((DESCRIBE, TOPIC), (READ, GROUP)),
    314: _MEMBER,
    **dict.fromkeys((41, 42, 200, 225, 307, 352), _OF_GROUP),
    207: all_of((DELETE, GROUP)),
    **dict.fromkeys((17, 18), all_of((ALTER, TOPIC))),
    215: all_of((DELETE, TOPIC)),
    # Lists and counters of what the caller may see, what the client itself has sent, and the features of the broker.
    **dict.fromkeys((21, 35, 43, 46, 201, 305, 317, 328, 402, 210001), USERS),
    **dict.fromkeys((25, 26, 28, 306, 316, 323, 329, 353, 401, 907), ADMINISTRATORS),
    **dict.fromkeys((3001, 3002, 3003, 3004, 3005), ADMINISTRATORS),
    **dict.fromkeys((3006, 3007, 3008), all_of((ALTER, CLUSTER))),
    **dict.fromkeys((3009, 3010), all_of((DESCRIBE, CLUSTER))),
}
AT_NAME_SERVER: dict[int, Ways] = {
    105: _SEES_TOPIC,
    # Lists of what the caller may see; addresses of brokers; texts that operators have stored for clients; features.
    **dict.fromkeys((101, 106, 206, 219, 224, 304, 311, 312, 313, 319, 901, 210001), USERS),
    **dict.fromkeys((100, 102, 103, 104, 205, 216, 217, 318, 322, 327, 904), ADMINISTRATORS),
}


class Row(NamedTuple):
    code: int
    is_broker: bool
    ways: Ways

    @property
    def id(self) -> str:
        return f"{self.code}-at-{'broker' if self.is_broker else 'name-server'}"


ROWS = (
    *(Row(code, True, ways) for code, ways in AT_BROKER.items()),
    *(Row(code, False, ways) for code, ways in AT_NAME_SERVER.items()),
)


@pytest.fixture(scope="module")
def world() -> World:
    return World()


@pytest.fixture
def audit() -> Iterator[AuditRecords]:
    with audited() as records:
        yield records


def test_every_code_has_a_row() -> None:
    assert AT_BROKER.keys() == BROKER.keys()
    assert AT_NAME_SERVER.keys() == NAME_SERVER.keys()


def give(world: World, allowed: Iterable[Need], denied: Iterable[Need] = ()) -> None:
    set_entries(world.access, allowed, denied)
    world.desk.runner.settle()


def is_refused(world: World, row: Row, user: str) -> bool:
    """Returns whether the request was refused, after checking that nothing was changed."""
    before = world.state()
    if world.send(user, row.code, row.is_broker) == NO_PERMISSION:
        assert world.state() == before, f"{row.id} was refused, and changed something"
        return True
    world.prepare()
    return False


def check_record(audit: AuditRecords, principal: str, about: str) -> None:
    records = audit.take("refused")
    record = records[0]
    assert (record["principal"], record["protocol"]) == (principal, "rocketmq"), about
    assert all(each == record for each in records), about  # in a minute, one record with their number


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
def test_a_request_is_allowed_by_exactly_the_rights_that_its_row_names(
    world: World, audit: AuditRecords, row: Row
) -> None:
    for granted in ([], *([single] for single in SINGLES), *row.ways):
        give(world, granted)
        audit.take("")
        refused = is_refused(world, row, "alice")
        told = f"{row.id} was {'refused' if refused else 'allowed'} to a user with {granted}"
        assert refused is not is_allowed(row.ways, granted), told
        if refused:
            check_record(audit, "alice", told)
    give(world, [])
    audit.take("")
    assert is_refused(world, row, "anonymous"), row.id
    check_record(audit, "anonymous", row.id)
    assert not is_refused(world, row, "root")


@pytest.mark.parametrize("row", [row for row in ROWS if any(row.ways)], ids=lambda row: row.id)
def test_a_denial_beats_everything_that_allows(world: World, row: Row) -> None:
    needs = {need for way in row.ways for need in way}
    for need in needs if len(row.ways) == 1 else ():
        give(world, SINGLES, [need])
        assert is_refused(world, row, "alice"), f"{row.id} was allowed in spite of a denial of {need}"
    give(world, SINGLES, needs)
    assert is_refused(world, row, "alice"), row.id


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
@pytest.mark.parametrize("field", PERMISSIONS)
def test_a_permission_of_rabbitmq_allows_what_it_is_for(world: World, row: Row, field: str) -> None:
    give(world, [])
    set_permission(world.access, field)
    world.desk.runner.settle()
    refused = is_refused(world, row, "alice")
    assert refused is not is_allowed(row.ways, needs_of_permission(field)), f"{row.id} with the permission {field}"
    set_permission(world.access)
    world.desk.runner.settle()


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
def test_what_an_administrator_changes_is_recorded(world: World, audit: AuditRecords, row: Row) -> None:
    world.prepare()
    before = world.state()["definitions"]
    audit.take("")
    world.send("root", row.code, row.is_broker)
    changes = audit.take("changed")
    assert {change["principal"] for change in changes} <= {"root"}
    if world.state()["definitions"] != before:
        assert changes, f"{row.id} changed definitions without a record"
    world.prepare()
