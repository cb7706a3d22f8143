"""Permissions of many principals: the broker starts as quickly, and each principal has its own."""

from __future__ import annotations

import sys
from types import FrameType

from doubles import PassRunner

from trimq.core.metadata.catalogue import Catalogue, Definition
from trimq.core.security.resources import Action, Resource, ResourceKind
from trimq.core.security.rights import Right, Rights
from trimq.storage.io.memory_files import MemoryFiles
from trimq.storage.tables.table import open_table

MAX_CALLS = 20
"""Per right at the start. One that compiled its patterns would need more, one that looks at all others thousands."""


def open_catalogue(runner: PassRunner, files: MemoryFiles) -> Catalogue:
    return Catalogue(open_table(files, "meta", "catalogue", runner.passes, Definition, runner.offload))


def topic(name: str) -> Resource:
    return Resource(ResourceKind.TOPIC, "", name)


def test_opening_the_rights_of_many_principals_takes_a_few_calls_for_each() -> None:
    files = MemoryFiles()
    runner = PassRunner(files)
    rights, count, calls = Rights(open_catalogue(runner, files)), 2000, 0
    for number in range(count):
        rights.grant(Right(f"user {number}", "", read=f"^orders {number}$"))
    runner.settle()
    catalogue = open_catalogue(PassRunner(files), files)

    def count_call(_: FrameType, event: str, __: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    profiling = sys.getprofile()
    sys.setprofile(count_call)
    try:
        rights = Rights(catalogue)
    finally:
        sys.setprofile(profiling)
    assert calls < MAX_CALLS * count
    assert rights.allows("user 77", Action.READ, topic("orders 77"))
    assert not rights.allows("user 77", Action.READ, topic("orders 78"))
    assert len(rights.principals) == count


def test_a_principal_is_known_until_its_last_right_is_revoked() -> None:
    files = MemoryFiles()
    runner = PassRunner(files)
    rights = Rights(open_catalogue(runner, files))
    for namespace in ("", "jobs"):
        rights.grant(Right("alice", namespace, read="."))
    rights.grant(Right("alice", "", write="."))
    assert not rights.allows("alice", Action.READ, topic("orders"))
    assert rights.allows("alice", Action.WRITE, topic("orders"))
    assert "alice" in rights.principals
    rights.revoke("alice", "")
    assert "alice" in rights.principals
    rights.revoke("alice", "jobs")
    assert "alice" not in rights.principals
    assert not rights.allows("alice", Action.WRITE, topic("orders"))
