"""Access control entries: allow or deny one action on resources of a literal or prefixed name, from any or some hosts.
Stored in the catalogue, one definition each. `access` combines them with users and RabbitMQ's permissions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

import msgspec

from trimq.core.metadata.catalogue import Catalogue, Definition
from trimq.core.security.resources import Action, Resource, ResourceKind
from trimq.errors import InvalidSetting
from trimq.model import DEFAULT_NAMESPACE
from trimq.storage.group_commit.passes import Ticket

_KIND = "acl"

EVERYBODY = "*"
"""Principal of entries that apply to every caller."""
ANY_HOST = "*"
ANY_NAME = "*"
"""Literal name of entries that apply to every resource of their kind."""

# Actions that allow an action, besides itself. Denials imply nothing.
_IMPLIED_BY = {
    Action.DESCRIBE: frozenset({Action.READ, Action.WRITE, Action.DELETE, Action.ALTER}),
    Action.DESCRIBE_CONFIGS: frozenset({Action.ALTER_CONFIGS}),
}
_NONE: frozenset[Action] = frozenset()


class AclEntry(msgspec.Struct, frozen=True, order=True):
    """`action` None: all actions that can be granted. `is_prefix`: applies to all names that start with `name`. `host`:
    an address, a network (10.0.0.0/8) or `*`."""

    principal: str
    kind: ResourceKind
    name: str
    action: Action | None
    is_allowed: bool = True
    is_prefix: bool = False
    host: str = ANY_HOST
    namespace: str = DEFAULT_NAMESPACE

    def covers(self, kind: ResourceKind, namespace: str, name: str) -> bool:
        """Returns whether the entry applies to this resource."""
        if kind is not self.kind or namespace != self.namespace:
            return False
        if self.is_prefix:
            return name.startswith(self.name)
        return self.name in (name, ANY_NAME)

    def decides(self, action: Action) -> bool:
        """Returns whether the entry allows, or denies, this action."""
        if self.action is None or self.action is action:
            return True
        if self.action is Action.LIST:
            return action is Action.DESCRIBE
        return self.is_allowed and self.action in _IMPLIED_BY.get(action, _NONE)


class AclEntries:
    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._listeners: list[Callable[[str], None]] = []
        self._by_principal: dict[str, set[AclEntry]] = {}
        self._with_host = 0
        for key, definition in catalogue.all(_KIND):
            self._changed(key, definition)
        catalogue.watch(_KIND, self._changed)

    def all(self) -> list[AclEntry]:
        return [entry for entries in self._by_principal.values() for entry in entries]

    @property
    def depend_on_hosts(self) -> bool:
        """True if any entry applies to some hosts only."""
        return self._with_host > 0

    def verdict(self, principal: str, host: str, action: Action, resource: Resource) -> bool | None:
        """Returns False if an entry denies the action, else True if one allows it, else None."""
        kind, namespace, name = resource
        found = None
        for entry in self._of(principal, host):
            if entry.covers(kind, namespace, name) and entry.decides(action):
                if not entry.is_allowed:
                    return False
                found = True
        return found

    def may_on_any(self, principal: str, host: str, action: Action, kind: ResourceKind) -> bool | None:
        """Returns whether the entries allow the action on at least one name: True; False if all names are denied; None
        if none is allowed."""
        deciding = [e for e in self._of(principal, host) if e.kind is kind and e.decides(action) and not e.namespace]
        denied = [entry for entry in deciding if not entry.is_allowed]
        if any(not entry.is_prefix and entry.name == ANY_NAME for entry in denied):
            return False
        for entry in deciding:
            if entry.is_allowed and not any(_hides(denial, entry) for denial in denied):
                return True
        return None

    def has_principal(self, principal: str) -> bool:
        """Returns whether any entry names this principal."""
        return principal in self._by_principal

    def may_enter(self, principal: str, namespace: str) -> bool:
        """Returns whether anything is allowed in the namespace."""
        return any(
            entry.is_allowed and entry.namespace == namespace
            for name in (principal, EVERYBODY)
            for entry in self._by_principal.get(name, ())
        )

    def put(self, entry: AclEntry) -> Ticket | None:
        """Returns None if there is such an entry and it is durable."""
        check_entry(entry)
        key = _key(entry)
        if self._catalogue.get(_KIND, key) is not None:
            return self._catalogue.pending(_KIND, key)
        return self._catalogue.put(_KIND, key, None, None)

    def delete(self, entry: AclEntry) -> Ticket | None:
        """Returns None if there is no such entry."""
        key = _key(entry)
        found = self._catalogue.get(_KIND, key)
        return None if found is None else self._catalogue.delete(_KIND, key, found.version)

    def forget(self, principal: str) -> None:
        """Deletes all entries of a principal."""
        for entry in list(self._by_principal.get(principal, ())):
            self.delete(entry)

    def on_change(self, listener: Callable[[str], None]) -> None:
        """Calls `listener` with the principal of a changed entry."""
        self._listeners.append(listener)

    def _of(self, principal: str, host: str) -> Iterator[AclEntry]:
        for name in (principal, EVERYBODY):
            for entry in self._by_principal.get(name, ()):
                if entry.host == ANY_HOST or _is_in(host, entry.host):
                    yield entry

    def _changed(self, key: str, definition: Definition | None) -> None:
        entry = _parse(key)
        entries = self._by_principal.setdefault(entry.principal, set())
        was_known = entry in entries
        if definition is None:
            entries.discard(entry)
        else:
            entries.add(entry)
        if not entries:
            del self._by_principal[entry.principal]
        if entry.host != ANY_HOST:
            self._with_host += (definition is not None) - was_known
        for listener in self._listeners:
            listener(entry.principal)


def host_of(address: str) -> str:
    """Returns the host of `host:port` or `[host]:port`."""
    return address.rpartition(":")[0].strip("[]")


def _hides(denial: AclEntry, allowed: AclEntry) -> bool:
    """Returns whether the denial applies to every name that the other entry allows."""
    if denial.is_prefix:
        return allowed.name.startswith(denial.name) and (allowed.is_prefix or allowed.name != ANY_NAME)
    return not allowed.is_prefix and allowed.name == denial.name


def check_entry(entry: AclEntry) -> None:
    """Raises InvalidSetting if the entry could not work."""
    if not entry.principal:
        raise InvalidSetting("principal", "the name is empty")
    if not entry.name:
        raise InvalidSetting("resource", "the name is empty")
    if entry.action is Action.ADMINISTER:
        raise InvalidSetting("action", "administer cannot be granted; make the user an administrator")
    if entry.host != ANY_HOST and _network(entry.host) is None:
        raise InvalidSetting("host", f"{entry.host!r} is no IP address, no network (10.0.0.0/8) and not *")


@lru_cache(1000)
def _network(text: str) -> IPv4Network | IPv6Network | None:
    try:
        return ip_network(text)
    except ValueError:
        return None


@lru_cache(1000)
def _address(text: str) -> IPv4Address | IPv6Address | None:
    try:
        found = ip_address(text)
    except ValueError:
        return None
    mapped = found.ipv4_mapped if isinstance(found, IPv6Address) else None
    return found if mapped is None else mapped


def _is_in(host: str, network: str) -> bool:
    address, found = _address(host), _network(network)
    return address is not None and found is not None and address in found


def _key(entry: AclEntry) -> str:
    """The whole entry as JSON, with words instead of numbers: the key is its stored form."""
    action = "all" if entry.action is None else entry.action.name.lower()
    words = (
        entry.principal,
        entry.host,
        entry.kind.name.lower(),
        entry.namespace,
        "prefixed" if entry.is_prefix else "literal",
        entry.name,
        action,
        "allow" if entry.is_allowed else "deny",
    )
    return msgspec.json.encode(words).decode("utf-8")


def _parse(key: str) -> AclEntry:
    words = msgspec.json.decode(key, type=tuple[str, str, str, str, str, str, str, str])
    principal, host, kind, namespace, pattern, name, action, permission = words
    return AclEntry(
        principal=principal,
        kind=ResourceKind[kind.upper()],
        name=name,
        action=None if action == "all" else Action[action.upper()],
        is_allowed=permission == "allow",
        is_prefix=pattern == "prefixed",
        host=host,
        namespace=namespace,
    )
