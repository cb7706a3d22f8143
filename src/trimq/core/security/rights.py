"""RabbitMQ's permissions: three regular expressions per principal and namespace, stored in the catalogue. They are the
rows of the table of rights that match names by a regular expression."""

from __future__ import annotations

from collections.abc import Callable, Collection

import msgspec

from trimq.core.metadata.catalogue import Catalogue, Definition
from trimq.core.name_patterns import NamePattern, require_valid
from trimq.core.security.resources import Action, Resource, ResourceKind
from trimq.storage.group_commit.passes import Ticket

_KIND = "right"

CONFIGURES = frozenset({Action.CREATE, Action.DELETE, Action.ALTER, Action.ALTER_CONFIGS})
"""Actions that the pattern `configure` allows."""
_DESCRIBES = frozenset({Action.DESCRIBE, Action.DESCRIBE_CONFIGS})


class Right(msgspec.Struct, frozen=True):
    """Each pattern is a regular expression that is searched for anywhere in a resource's name; an empty pattern allows
    nothing. Applies to all kinds of resources except the broker itself."""

    principal: str
    namespace: str
    configure: str = ""
    write: str = ""
    read: str = ""


class Rights:
    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._listeners: list[Callable[[str], None]] = []
        self._rights: dict[tuple[str, str], Right] = {}
        self._compiled: dict[tuple[str, str], _CompiledRight] = {}
        """Compiled when first asked for: a start with many users would take seconds."""
        self._counts: dict[str, int] = {}
        """Number of rights of each principal that has any."""
        for key, definition in catalogue.all(_KIND):
            self._changed(key, definition)
        catalogue.watch(_KIND, self._changed)

    def all(self) -> list[Right]:
        return list(self._rights.values())

    @property
    def principals(self) -> Collection[str]:
        """Those with any right."""
        return self._counts.keys()

    def allows(self, principal: str, action: Action, resource: Resource) -> bool:
        """DESCRIBE and DESCRIBE_CONFIGS are allowed by each of the three patterns."""
        if resource.kind is ResourceKind.BROKER:
            return False
        key = principal, resource.namespace
        compiled = self._compiled.get(key)
        if compiled is None:
            right = self._rights.get(key)
            if right is None:
                return False
            compiled = self._compiled[key] = _CompiledRight(right)
        return compiled.allows(action, resource.name)

    def may_write_any(self, principal: str, namespace: str) -> bool:
        """Returns whether there is any pattern for writing."""
        right = self._rights.get((principal, namespace))
        return right is not None and bool(right.write)

    def has(self, principal: str, namespace: str) -> bool:
        return (principal, namespace) in self._rights

    def grant(self, right: Right) -> Ticket:
        """Replaces the principal's rights in this namespace."""
        for name in ("configure", "write", "read"):
            require_valid(name, getattr(right, name))
        key = _key(right.principal, right.namespace)
        found = self._catalogue.get(_KIND, key)
        return self._catalogue.put(_KIND, key, msgspec.to_builtins(right), None if found is None else found.version)

    def revoke(self, principal: str, namespace: str) -> Ticket | None:
        """Removes the principal's rights in this namespace. Returns None if there were none."""
        key = _key(principal, namespace)
        found = self._catalogue.get(_KIND, key)
        return None if found is None else self._catalogue.delete(_KIND, key, found.version)

    def on_change(self, listener: Callable[[str], None]) -> None:
        """Calls `listener` with the principal whose rights have changed."""
        self._listeners.append(listener)

    def _changed(self, key: str, definition: Definition | None) -> None:
        place: tuple[str, str] = msgspec.json.decode(key, type=tuple[str, str])
        principal = place[0]
        self._compiled.pop(place, None)
        if self._rights.pop(place, None) is not None:
            self._counts[principal] -= 1
        if definition is not None:
            self._rights[place] = msgspec.convert(definition.value, Right)
            self._counts[principal] = self._counts.get(principal, 0) + 1
        elif not self._counts.get(principal):
            self._counts.pop(principal, None)
        for listener in self._listeners:
            listener(principal)


class _CompiledRight:
    """Right with its compiled patterns."""

    def __init__(self, right: Right) -> None:
        configure = NamePattern(right.configure, "configure")
        self._patterns = {
            **dict.fromkeys(CONFIGURES, configure),
            Action.WRITE: NamePattern(right.write, "write"),
            Action.READ: NamePattern(right.read, "read"),
        }
        self._all = (configure, self._patterns[Action.WRITE], self._patterns[Action.READ])

    def allows(self, action: Action, name: str) -> bool:
        if action in _DESCRIBES:
            return any(pattern.search(name) for pattern in self._all)
        pattern = self._patterns.get(action)
        return pattern is not None and pattern.search(name)


def _key(principal: str, namespace: str) -> str:
    """JSON, because both names may contain any character."""
    return msgspec.json.encode((principal, namespace)).decode("utf-8")
