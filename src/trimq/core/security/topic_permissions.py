"""RabbitMQ's topic permissions: two regular expressions per user, namespace and topic exchange, searched in routing
keys. Stored in the catalogue; they only restrict what the permissions of the exchange allow."""

from __future__ import annotations

import re
from collections.abc import Callable

import msgspec

from trimq.core.metadata.catalogue import Catalogue
from trimq.core.name_patterns import NamePattern, require_valid
from trimq.core.security.resources import Action
from trimq.storage.group_commit.passes import Ticket

_KIND = "topic_right"

_VARIABLE = re.compile(r"\{(username|vhost)\}")
_ROOT = "/"


class TopicPermission(msgspec.Struct, frozen=True):
    """In the patterns, `{username}` and `{vhost}` stand for the names of the user and the virtual host."""

    principal: str
    namespace: str
    exchange: str
    write: str = ""
    read: str = ""


class TopicPermissions:
    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._permissions: dict[tuple[str, str, str], TopicPermission] = {}
        self._compiled: dict[tuple[str, str, str], dict[Action, NamePattern]] = {}
        self.has_any = False
        """A plain attribute: it is read once per published message."""
        for key, definition in catalogue.all(_KIND):
            self._changed(key, definition)
        catalogue.watch(_KIND, self._changed)

    def all(self) -> list[TopicPermission]:
        return list(self._permissions.values())

    def allows(self, principal: str, namespace: str, exchange: str, action: Action, key: str) -> bool:
        """Returns True where no topic permission of this user is set for the exchange."""
        place = principal, namespace, exchange
        permission = self._permissions.get(place)
        if permission is None:
            return True
        compiled = self._compiled.get(place)
        if compiled is None:
            compiled = self._compiled[place] = {
                Action.WRITE: NamePattern(_expand(permission.write, permission), "write"),
                Action.READ: NamePattern(_expand(permission.read, permission), "read"),
            }
        return compiled[action].search(key)

    def put(self, permission: TopicPermission) -> Ticket:
        """Replaces the permission of the same user, namespace and exchange."""
        for name in ("write", "read"):
            require_valid(name, _expand(getattr(permission, name), permission))
        key = _key(permission.principal, permission.namespace, permission.exchange)
        found = self._catalogue.get(_KIND, key)
        version = None if found is None else found.version
        return self._catalogue.put(_KIND, key, msgspec.to_builtins(permission), version)

    def clear(self, is_cleared: Callable[[TopicPermission], bool]) -> list[Ticket]:
        """Removes all permissions for which `is_cleared` returns True."""
        tickets = []
        for place, permission in list(self._permissions.items()):
            if is_cleared(permission):
                found = self._catalogue.get(_KIND, _key(*place))
                assert found is not None, "the permissions follow the catalogue"
                tickets.append(self._catalogue.delete(_KIND, _key(*place), found.version))
        return tickets

    def _changed(self, key: str, definition: object) -> None:
        place: tuple[str, str, str] = msgspec.json.decode(key, type=tuple[str, str, str])
        self._compiled.pop(place, None)
        self._permissions.pop(place, None)
        value = getattr(definition, "value", None)
        if value is not None:
            self._permissions[place] = msgspec.convert(value, TopicPermission)
        self.has_any = bool(self._permissions)


def _expand(pattern: str, permission: TopicPermission) -> str:
    """Returns the pattern with its variables, as literal texts."""
    values = {"username": permission.principal, "vhost": permission.namespace or _ROOT}
    return _VARIABLE.sub(lambda variable: re.escape(values[variable[1]]), pattern)


def _key(*place: str) -> str:
    """JSON, because all names may contain any character."""
    return msgspec.json.encode(place).decode("utf-8")
