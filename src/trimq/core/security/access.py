"""Users and their rights, stored once for all protocols in the catalogue. Decides by the caller's principal; front-ends
authenticate clients."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import NamedTuple

import msgspec

from trimq.core.metadata.catalogue import Catalogue, Definition
from trimq.core.name_patterns import NamePattern, require_valid
from trimq.core.security.passwords import SALT_BYTES, hash_password, matches, unknown_password
from trimq.errors import AccessDenied, InvalidSetting, UnknownUser
from trimq.model import DEFAULT_NAMESPACE, SYSTEM, Caller, TopicName
from trimq.storage.group_commit.passes import Ticket

_USER = "user"
_RIGHT = "right"
_CACHED_DECISIONS = 10_000


class Action(IntEnum):
    """CONFIGURE covers create, change and delete. DESCRIBE needs any of the three rights on the name. ADMINISTER covers
    users, rights and the broker itself. (An IntEnum, because it hashes as fast as a number.)"""

    CONFIGURE = 0
    WRITE = 1
    READ = 2
    DESCRIBE = 3
    ADMINISTER = 4


class ResourceKind(IntEnum):
    TOPIC = 0
    GROUP = 1
    ROUTE = 2
    TRANSACTION = 3
    BROKER = 4


class Resource(NamedTuple):
    kind: ResourceKind
    namespace: str
    name: str

    def __str__(self) -> str:
        where = f" of {self.namespace}" if self.namespace else ""
        return f"{self.kind.name.lower()} {self.name}{where}"


def group_resource(group: str) -> Resource:
    """Consumer groups are global: their rights are those of the default namespace, whatever virtual host or namespace a
    request names."""
    return Resource(ResourceKind.GROUP, DEFAULT_NAMESPACE, group)


BROKER = Resource(ResourceKind.BROKER, DEFAULT_NAMESPACE, "trimq")


class User(msgspec.Struct, frozen=True):
    """An administrator may do everything, in every namespace."""

    name: str
    password_hash: str
    is_administrator: bool = False


class Right(msgspec.Struct, frozen=True):
    """Rights of a principal in a namespace, as in RabbitMQ: each pattern is a regular expression that is searched for
    anywhere in a resource's name; an empty pattern allows nothing."""

    principal: str
    namespace: str
    configure: str = ""
    write: str = ""
    read: str = ""


class Access:
    """While no user is defined, every caller may do everything. From the first user on, a caller needs a right that
    allows the action, or must be an administrator."""

    def __init__(self, catalogue: Catalogue, random_bytes: Callable[[int], bytes]) -> None:
        self._catalogue = catalogue
        self._random_bytes = random_bytes
        self._users: dict[str, User] = {}
        self._removed: list[Callable[[str], None]] = []
        self._password_changed: list[Callable[[str], None]] = []
        self._rights_changed: list[Callable[[str | None], None]] = []
        self._rights: dict[tuple[str, str], _CompiledRight] = {}
        self._principals: frozenset[str] = frozenset()  # those with any right
        self._decisions: dict[tuple[str, Action, Resource], bool] = {}
        self.revision = 0
        """Increases with every change of users and rights."""
        # A login with an unknown name takes as long as any other, so that the time does not reveal which users exist.
        self._nobody = unknown_password(random_bytes)
        for key, definition in catalogue.all(_USER):
            self._user_changed(key, definition)
        for key, definition in catalogue.all(_RIGHT):
            self._right_changed(key, definition)
        catalogue.watch(_USER, self._user_changed)
        catalogue.watch(_RIGHT, self._right_changed)

    # -- decisions

    @property
    def is_enforced(self) -> bool:
        """False while every caller may do everything."""
        return bool(self._users)

    def allowed(self, caller: Caller, action: Action, resource: Resource) -> bool:
        if not self._users or caller is SYSTEM:
            return True
        decision = self._decisions.get((caller.principal, action, resource))
        if decision is None:
            decision = self._decide(caller.principal, action, resource)
            if len(self._decisions) >= _CACHED_DECISIONS:
                self._decisions.clear()
            self._decisions[caller.principal, action, resource] = decision
        return decision

    def require(self, caller: Caller, action: Action, resource: Resource) -> None:
        if self._users and not self.allowed(caller, action, resource):
            raise AccessDenied(caller.principal, action.name.lower(), str(resource), resource.name, resource.namespace)

    def require_topic(self, caller: Caller, action: Action, name: TopicName) -> None:
        """Same as `require`, for each message that names its topic: allocates nothing while no user is defined."""
        if self._users:
            self.require(caller, action, Resource(ResourceKind.TOPIC, name.namespace, name.name))

    def require_group(self, caller: Caller, action: Action, group: str) -> None:
        """Same as `require`, for a consumer group: allocates nothing while no user is defined."""
        if self._users:
            self.require(caller, action, group_resource(group))

    def require_known(self, caller: Caller) -> None:
        """Raises AccessDenied if the caller is no user and has no right at all. For requests that concern no topic and
        no group."""
        if not self._users or caller is SYSTEM or caller.principal in self._users:
            return
        if caller.principal not in self._principals:
            raise AccessDenied(caller.principal, "describe", str(BROKER), BROKER.name, BROKER.namespace)

    def _decide(self, principal: str, action: Action, resource: Resource) -> bool:
        user = self._users.get(principal)
        if user is not None and user.is_administrator:
            return True
        patterns = self._rights.get((principal, resource.namespace))
        return patterns is not None and patterns.allow(action, resource.name)

    # -- users

    def users(self) -> list[User]:
        return list(self._users.values())

    def password_hash(self, name: str) -> str:
        """Returns the hash to pass to `matches`. For an unknown user, it is a hash of no known password."""
        user = self._users.get(name)
        return self._nobody if user is None else user.password_hash

    def verify(self, name: str, password: str) -> bool:
        """Takes 50 ms on purpose. On the event loop, run `matches(password, password_hash(name))` in a thread."""
        return matches(password, self.password_hash(name)) and name in self._users

    def define_user(self, name: str, password: str, is_administrator: bool = False) -> Ticket:
        """Creates a user or changes its password. Takes 50 ms, as `verify` does."""
        return self.put_user(User(name, hash_password(password, self.new_salt()), is_administrator))

    def new_salt(self) -> bytes:
        return self._random_bytes(SALT_BYTES)

    def put_user(self, user: User) -> Ticket:
        if not user.name:
            raise InvalidSetting("user", "the user name is empty")
        return self._put(_USER, user.name, user)

    def on_removed(self, listener: Callable[[str], None]) -> None:
        """Calls `listener` with the name of every user that is removed."""
        self._removed.append(listener)

    def on_password_changed(self, listener: Callable[[str], None]) -> None:
        """Calls `listener` with the name of every user whose password is changed."""
        self._password_changed.append(listener)

    def on_rights_changed(self, listener: Callable[[str | None], None]) -> None:
        """Calls `listener` with the principal whose rights have changed; with None if those of all may have, because
        the first user was defined or the last one removed."""
        self._rights_changed.append(listener)

    def remove_user(self, name: str) -> Ticket:
        """Removes the user and all its rights. After the last user is removed, every caller may do everything again."""
        found = self._catalogue.get(_USER, name)
        if found is None:
            raise UnknownUser(name)
        for right in self.rights():
            if right.principal == name:
                self.revoke(name, right.namespace)
        return self._catalogue.delete(_USER, name, found.version)

    # -- rights

    def rights(self) -> list[Right]:
        return [patterns.right for patterns in self._rights.values()]

    def grant(self, right: Right) -> Ticket:
        """Replaces the principal's rights in this namespace."""
        for name in ("configure", "write", "read"):
            require_valid(name, getattr(right, name))
        return self._put(_RIGHT, _right_key(right.principal, right.namespace), right)

    def revoke(self, principal: str, namespace: str) -> Ticket | None:
        """Removes the principal's rights in this namespace. Returns None if there were none."""
        key = _right_key(principal, namespace)
        found = self._catalogue.get(_RIGHT, key)
        return None if found is None else self._catalogue.delete(_RIGHT, key, found.version)

    def _put(self, kind: str, key: str, value: User | Right) -> Ticket:
        found = self._catalogue.get(kind, key)
        return self._catalogue.put(kind, key, msgspec.to_builtins(value), None if found is None else found.version)

    # -- changes of the catalogue

    def _user_changed(self, key: str, definition: Definition | None) -> None:
        self._forget_decisions()
        known, was_enforced = self._users.get(key), self.is_enforced
        if definition is None:
            self._users.pop(key, None)
            for listener in self._removed:
                listener(key)
        else:
            user = self._users[key] = msgspec.convert(definition.value, User)
            if known is not None and known.password_hash != user.password_hash:
                for listener in self._password_changed:
                    listener(key)
        self._tell_rights_changed(key if self.is_enforced == was_enforced else None)

    def _tell_rights_changed(self, principal: str | None) -> None:
        for listener in self._rights_changed:
            listener(principal)

    def _forget_decisions(self) -> None:
        self._decisions.clear()
        self.revision += 1

    def _right_changed(self, key: str, definition: Definition | None) -> None:
        self._forget_decisions()
        principal, namespace = msgspec.json.decode(key, type=tuple[str, str])
        if definition is None:
            self._rights.pop((principal, namespace), None)
        else:
            self._rights[principal, namespace] = _CompiledRight(msgspec.convert(definition.value, Right))
        self._principals = frozenset(principal for principal, _ in self._rights)
        self._tell_rights_changed(principal)


class _CompiledRight:
    """Right with its compiled patterns."""

    def __init__(self, right: Right) -> None:
        self.right = right
        self._patterns = {
            Action.CONFIGURE: _compile("configure", right.configure),
            Action.WRITE: _compile("write", right.write),
            Action.READ: _compile("read", right.read),
        }

    def allow(self, action: Action, name: str) -> bool:
        if action is Action.DESCRIBE:
            return any(pattern.search(name) for pattern in self._patterns.values())
        pattern = self._patterns.get(action)
        return pattern is not None and pattern.search(name)


def _compile(name: str, pattern: str) -> NamePattern:
    return NamePattern(pattern, name)


def _right_key(principal: str, namespace: str) -> str:
    """JSON, because both names may contain any character."""
    return msgspec.json.encode((principal, namespace)).decode("utf-8")
