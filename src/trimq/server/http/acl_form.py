"""JSON form of access control entries, of permissions of users and of their export."""

from __future__ import annotations

from typing import Literal

import msgspec

from trimq.core.security.acl_entries import ANY_HOST, AclEntry
from trimq.core.security.resources import BROKER, Action, ResourceKind
from trimq.server.http.vhosts import namespace_of, vhost_of

_KINDS = {
    "topic": ResourceKind.TOPIC,
    "group": ResourceKind.GROUP,
    "exchange": ResourceKind.ROUTE,
    "transactional-id": ResourceKind.TRANSACTION,
    "broker": ResourceKind.BROKER,
}
_WORDS = {kind: word for word, kind in _KINDS.items()}
_ACTIONS = {action.name.lower().replace("_", "-"): action for action in Action if action is not Action.ADMINISTER}
_ALL = "all"


class AclForm(msgspec.Struct, forbid_unknown_fields=True):
    """`resource`: topic (queues too), group, exchange, transactional-id or broker, which needs no name. `name` and
    `user` `*`: all."""

    user: str
    resource: str
    action: str
    name: str = ""
    pattern: Literal["literal", "prefixed"] = "literal"
    permission: Literal["allow", "deny"] = "allow"
    host: str = ANY_HOST
    vhost: str = "/"

    def to_entry(self) -> AclEntry:
        """Raises ValueError if a word is unknown."""
        kind = _KINDS.get(self.resource)
        if kind is None:
            raise ValueError(f"resource {self.resource!r} is none of {', '.join(_KINDS)}")
        if self.action != _ALL and self.action not in _ACTIONS:
            raise ValueError(f"action {self.action!r} is none of {_ALL}, {', '.join(_ACTIONS)}")
        return AclEntry(
            principal=self.user,
            kind=kind,
            name=BROKER.name if kind is ResourceKind.BROKER else self.name,
            action=_ACTIONS.get(self.action),
            is_allowed=self.permission == "allow",
            is_prefix=self.pattern == "prefixed",
            host=self.host,
            namespace=namespace_of(self.vhost),
        )


def form_of(entry: AclEntry) -> AclForm:
    return AclForm(
        user=entry.principal,
        resource=_WORDS[entry.kind],
        action=_ALL if entry.action is None else entry.action.name.lower().replace("_", "-"),
        name="" if entry.kind is ResourceKind.BROKER else entry.name,
        pattern="prefixed" if entry.is_prefix else "literal",
        permission="allow" if entry.is_allowed else "deny",
        host=entry.host,
        vhost=vhost_of(entry.namespace),
    )
