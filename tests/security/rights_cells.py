"""Cells of the matrices of rights: who asks (anonymous, a user without a right, with each right alone, with all of them
but one, an administrator), the audit records that a cell leaves, and the state that a refusal must not change."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import product
from typing import Any

from trimq.core.security.access import Access
from trimq.core.security.acl_entries import AclEntry
from trimq.core.security.resources import BROKER, Action, ResourceKind

TOPIC, GROUP, EXCHANGE = ResourceKind.TOPIC, ResourceKind.GROUP, ResourceKind.ROUTE
TXID, CLUSTER = ResourceKind.TRANSACTION, ResourceKind.BROKER

Need = tuple[Action, ResourceKind]
"""An operation and the kind of the resource."""

Ways = tuple[frozenset[Need], ...]
"""Alternatives, each a set of operations that are all needed. None: only administrators pass."""

SINGLES: tuple[Need, ...] = tuple(
    product([action for action in Action if action not in (Action.ADMINISTER, Action.LIST)], ResourceKind)
)
IMPLIED = {
    Action.DESCRIBE: {Action.READ, Action.WRITE, Action.DELETE, Action.ALTER},
    Action.DESCRIBE_CONFIGS: {Action.ALTER_CONFIGS},
}
ADMINISTRATORS: Ways = ()
USERS: Ways = (frozenset(),)
"""Everybody who is logged in."""
ANY_RIGHT: Ways = tuple(frozenset({single}) for single in SINGLES)


def all_of(*needs: Need) -> Ways:
    return (frozenset(needs),)


def one_of(*needs: Need) -> Ways:
    return tuple(frozenset({need}) for need in needs)


def holds(granted: Need, need: Need) -> bool:
    """Returns whether a granted operation allows the needed one."""
    return granted[1] is need[1] and (granted[0] is need[0] or granted[0] in IMPLIED.get(need[0], ()))


def is_allowed(ways: Ways, granted: Iterable[Need]) -> bool:
    given = list(granted)
    return any(all(any(holds(one, need) for one in given) for need in way) for way in ways)


def entry_of(need: Need, is_allowed: bool = True, user: str = "alice") -> AclEntry:
    action, kind = need
    return AclEntry(user, kind, BROKER.name if kind is CLUSTER else "*", action, is_allowed)


def set_entries(access: Access, allowed: Iterable[Need], denied: Iterable[Need] = ()) -> None:
    """Replaces alice's entries: each is for all names."""
    access.entries.forget("alice")
    for need in allowed:
        access.entries.put(entry_of(need))
    for need in denied:
        access.entries.put(entry_of(need, is_allowed=False))


class AuditRecords(logging.Handler):
    """Audit records since the last look."""

    def __init__(self) -> None:
        super().__init__()
        self._records: list[dict[str, Any]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self._records.append(json.loads(record.getMessage()))

    def take(self, event: str) -> list[dict[str, Any]]:
        """Returns the records of this kind; all are forgotten."""
        found = [record for record in self._records if record["event"] == event]
        self._records.clear()
        return found


@contextmanager
def audited() -> Iterator[AuditRecords]:
    handler, logger = AuditRecords(), logging.getLogger("trimq.audit")
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield handler
    finally:
        logger.setLevel(level)
        logger.removeHandler(handler)
