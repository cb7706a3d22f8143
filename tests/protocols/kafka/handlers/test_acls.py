from __future__ import annotations

from typing import Any

import pytest
from protocols.kafka.desk import Desk

from trimq.core.security.rights import Right
from trimq.errors import ProtocolError
from trimq.formats.kafka_batch.builder import from_records
from trimq.model import Record
from trimq.protocols.kafka.messages.acls import (
    AclCreation,
    CreateAclsRequest,
    DeleteAclsFilter,
    DeleteAclsRequest,
    DescribeAclsRequest,
)
from trimq.protocols.kafka.names.acls import PatternType, PermissionType, ResourceType
from trimq.protocols.kafka.names.codes import Code

READ, WRITE, CREATE, ALTER = 3, 4, 5, 7
ALL, ANY = 2, 1


@pytest.fixture
def desk() -> Desk:
    desk = Desk()
    access = desk.core.broker.users._access
    access.define_user("root", "root's", is_administrator=True)
    access.define_user("alice", "alice's")
    desk.runner.settle()
    desk.speak_as("root")
    desk.create("orders")
    return desk


def acl(name: str = "orders", operation: int = READ, **fields: Any) -> AclCreation:
    given = {"resource_type": ResourceType.TOPIC, "principal": "User:alice", "host": "*", "permission_type": 3}
    return AclCreation(resource_name=name, operation=operation, **{**given, **fields})


def create(desk: Desk, *creations: AclCreation) -> list[tuple[int, str | None]]:
    results = desk.ask(CreateAclsRequest(creations=list(creations))).results
    return [(result.error_code, result.error_message) for result in results]


def asked(**fields: Any) -> dict[str, Any]:
    numbers = ("resource_type_filter", "pattern_type_filter", "operation", "permission_type")
    texts = ("resource_name_filter", "principal_filter", "host_filter")
    return {**dict.fromkeys(numbers, ANY), **dict.fromkeys(texts), **fields}


def describe(desk: Desk, **fields: Any) -> set[tuple[Any, ...]]:
    response = desk.ask(DescribeAclsRequest(**asked(**fields)))
    assert (response.error_code, response.error_message) == (0, "")
    return {
        (found.resource_type, found.resource_name, found.pattern_type, *written(one))
        for found in response.resources
        for one in found.acls
    }


def written(one: Any) -> tuple[Any, ...]:
    return one.principal, one.host, one.operation, one.permission_type


def row(creation: AclCreation) -> tuple[Any, ...]:
    return (creation.resource_type, creation.resource_name, creation.resource_pattern_type, *written(creation))


def produce_code(desk: Desk) -> int:
    return desk.produce("orders", bytearray(from_records([Record(b"1")]))).error_code


def test_a_created_entry_allows_and_a_denial_refuses_at_once(desk: Desk) -> None:
    desk.speak_as("alice")
    assert produce_code(desk) == Code.TOPIC_AUTHORIZATION_FAILED
    desk.speak_as("root")
    assert create(desk, acl(operation=WRITE)) == [(0, "")]
    desk.speak_as("alice")
    assert produce_code(desk) == Code.NONE
    desk.speak_as("root")
    deny = acl("*", ALL, principal="User:*", host="10.0.0.1", permission_type=PermissionType.DENY)
    assert create(desk, deny) == [(0, "")]
    desk.speak_as("alice")
    assert produce_code(desk) == Code.TOPIC_AUTHORIZATION_FAILED


def test_entries_are_read_back_as_they_were_written(desk: Desk) -> None:
    creations = [
        acl(),
        acl(operation=ALL, host="10.0.0.1"),
        acl("ord", resource_pattern_type=PatternType.PREFIXED, permission_type=PermissionType.DENY),
        acl("*", principal="User:*"),
        acl("billing", resource_type=ResourceType.GROUP),
        acl("tx", WRITE, resource_type=ResourceType.TRANSACTIONAL_ID),
        acl("kafka-cluster", ALTER, resource_type=ResourceType.CLUSTER, principal="User:ANONYMOUS"),
        acl("über/:x", principal="User:CN=a,O=b"),
    ]
    assert create(desk, *creations, *creations) == [(0, "")] * 16
    assert describe(desk) == {row(creation) for creation in creations}
    desk = desk.restart()
    desk.speak_as("root")
    assert describe(desk) == {row(creation) for creation in creations}


LITERAL, PREFIXED, WILD, GROUP = (
    acl(),
    acl("ord", resource_pattern_type=PatternType.PREFIXED),
    acl("*", WRITE),
    acl("orders", resource_type=ResourceType.GROUP, principal="User:bob", host="10.0.0.1"),
)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, [LITERAL, PREFIXED, WILD, GROUP]),
        ({"resource_type_filter": ResourceType.GROUP}, [GROUP]),
        ({"resource_name_filter": "orders"}, [LITERAL, GROUP]),
        ({"resource_name_filter": "orders", "pattern_type_filter": PatternType.LITERAL}, [LITERAL, GROUP]),
        ({"resource_name_filter": "ord", "pattern_type_filter": PatternType.PREFIXED}, [PREFIXED]),
        ({"resource_name_filter": "ord", "pattern_type_filter": PatternType.LITERAL}, []),
        ({"pattern_type_filter": PatternType.PREFIXED}, [PREFIXED]),
        (
            {"resource_name_filter": "orders", "pattern_type_filter": PatternType.MATCH},
            [LITERAL, PREFIXED, WILD, GROUP],
        ),
        ({"resource_name_filter": "ordinary", "pattern_type_filter": PatternType.MATCH}, [PREFIXED, WILD]),
        ({"principal_filter": "User:bob"}, [GROUP]),
        ({"principal_filter": "bob"}, []),
        ({"host_filter": "10.0.0.1"}, [GROUP]),
        ({"host_filter": "*"}, [LITERAL, PREFIXED, WILD]),
        ({"operation": WRITE}, [WILD]),
        ({"operation": ALL}, []),
        ({"permission_type": PermissionType.DENY}, []),
    ],
)
def test_a_filter_selects_what_is_listed_and_what_is_deleted(
    desk: Desk, fields: dict[str, Any], expected: list[AclCreation]
) -> None:
    everything = [LITERAL, PREFIXED, WILD, GROUP]
    create(desk, *everything)
    assert describe(desk, **fields) == {row(creation) for creation in expected}
    (result,) = desk.ask(DeleteAclsRequest(filters=[DeleteAclsFilter(**asked(**fields))])).filter_results
    assert result.error_code == 0
    deleted = [(one.resource_type, one.resource_name, one.pattern_type, *written(one)) for one in result.matching_acls]
    assert sorted(deleted) == sorted(row(creation) for creation in expected)
    assert describe(desk) == {row(creation) for creation in everything if creation not in expected}


def test_an_entry_that_two_filters_match_is_reported_by_both(desk: Desk) -> None:
    create(desk, LITERAL)
    filters = [DeleteAclsFilter(**asked()), DeleteAclsFilter(**asked(resource_name_filter="orders"))]
    results = desk.ask(DeleteAclsRequest(filters=filters)).filter_results
    assert [len(result.matching_acls) for result in results] == [1, 1]


@pytest.mark.parametrize(
    ("creation", "reason"),
    [
        (acl("cluster", resource_type=ResourceType.CLUSTER), "The only valid name for the CLUSTER resource is"),
        (acl(""), "Invalid empty resource name"),
        (acl(resource_pattern_type=PatternType.MATCH), "Invalid patternType MATCH"),
        (acl(permission_type=PermissionType.ANY), "Invalid permissionType ANY"),
        (acl(operation=ANY), "Invalid operation ANY"),
        (acl(resource_type=ResourceType.DELEGATION_TOKEN), "DELEGATION_TOKEN is not served"),
        (acl(resource_type=99), "Invalid resourceType UNKNOWN"),
        (acl(resource_type=ResourceType.ANY), "Invalid resourceType ANY"),
        (acl(operation=99), "Invalid operation UNKNOWN"),
        (acl(operation=15), "TWO_PHASE_COMMIT is not served"),
        (acl(resource_pattern_type=9), "Invalid patternType UNKNOWN"),
        (acl(principal="alice"), "no colon is present"),
        (acl(principal="Group:admins"), "is not served: write User:NAME"),
        (acl(principal="User:"), "is not served"),
        (acl(host="example.com"), "no IP address"),
    ],
)
def test_an_entry_that_could_not_work_is_refused(desk: Desk, creation: AclCreation, reason: str) -> None:
    ((code, message), (other, _)) = create(desk, creation, LITERAL)
    assert (code, other) == (Code.INVALID_REQUEST, 0)
    assert reason in str(message)
    assert describe(desk) == {row(LITERAL)}


def test_an_unknown_element_closes_the_connection(desk: Desk) -> None:
    """As a genuine Kafka does."""
    for creation in (acl(operation=0), acl(resource_type=0), acl(resource_pattern_type=0), acl(permission_type=0)):
        with pytest.raises(ProtocolError, match="UNKNOWN"):
            create(desk, LITERAL, creation)
    for field in ("operation", "resource_type_filter", "pattern_type_filter", "permission_type"):
        with pytest.raises(ProtocolError, match="UNKNOWN"):
            desk.ask(DescribeAclsRequest(**asked(**{field: 0})))
        with pytest.raises(ProtocolError, match="UNKNOWN"):
            desk.ask(DeleteAclsRequest(filters=[DeleteAclsFilter(**asked(**{field: 0}))]))
    assert describe(desk) == set()


def test_permissions_of_rabbitmq_are_shown_and_cannot_be_deleted(desk: Desk) -> None:
    desk.core.broker.users._access.grant(Right("alice", "", write="^ord"))
    desk.core.broker.users._access.grant(Right("alice", "shop", read=".*"))
    desk.runner.settle()
    expected = {
        (type, "regexp:^ord", PatternType.LITERAL, "User:alice", "*", WRITE, PermissionType.ALLOW)
        for type in (ResourceType.TOPIC, ResourceType.TRANSACTIONAL_ID)
    }
    assert describe(desk) == expected
    (result,) = desk.ask(DeleteAclsRequest(filters=[DeleteAclsFilter(**asked())])).filter_results
    assert [one.error_code for one in result.matching_acls] == [Code.INVALID_REQUEST] * 2
    assert "trimq users" in result.matching_acls[0].error_message
    assert describe(desk) == expected


@pytest.mark.parametrize("rights", [[], [acl("*", ALL)], [acl("kafka-cluster", CREATE, resource_type=4)]])
def test_without_the_right_on_the_cluster_entries_are_neither_shown_nor_changed(
    desk: Desk, rights: list[AclCreation]
) -> None:
    create(desk, *rights)
    before = describe(desk)
    desk.speak_as("alice")
    assert desk.ask(DescribeAclsRequest(**asked())).error_code == Code.CLUSTER_AUTHORIZATION_FAILED
    assert create(desk, LITERAL)[0][0] == Code.CLUSTER_AUTHORIZATION_FAILED
    (result,) = desk.ask(DeleteAclsRequest(filters=[DeleteAclsFilter(**asked())])).filter_results
    assert result.error_code == Code.CLUSTER_AUTHORIZATION_FAILED
    desk.speak_as("root")
    assert describe(desk) == before


def test_entries_that_could_not_be_written_are_answered_with_an_error(desk: Desk) -> None:
    desk.fail_writes()
    assert create(desk, LITERAL)[0][0] == Code.KAFKA_STORAGE_ERROR
    assert describe(desk) == set()


def test_while_every_client_may_do_everything_entries_are_refused() -> None:
    desk = Desk()
    assert desk.ask(DescribeAclsRequest(**asked())).error_code == Code.SECURITY_DISABLED
    assert create(desk, LITERAL) == [(Code.SECURITY_DISABLED, "No Authorizer is configured.")]
    (result,) = desk.ask(DeleteAclsRequest(filters=[DeleteAclsFilter(**asked())])).filter_results
    assert result.error_code == Code.SECURITY_DISABLED
