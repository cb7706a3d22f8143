"""Operations on users and their rights, reached as `broker.users`. Each checks the caller's rights, then changes the
core's one access table; passwords are hashed off the event loop."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from trimq.core.security.access import BROKER, Access, Action, Right, User
from trimq.core.security.acl_entries import AclEntry, check_entry
from trimq.core.security.authentication import GUEST, is_loopback
from trimq.core.security.credentials import Credentials
from trimq.core.security.passwords import hash_password
from trimq.core.security.scram_credentials import ScramCredential, credentials_of_password
from trimq.core.security.signing_secrets import SigningSecret
from trimq.core.security.tenant_limits import Tenant, TenantLimits
from trimq.core.security.topic_permissions import TopicPermission
from trimq.errors import AccessDenied, InvalidSetting, LimitReached, Refusal, UnknownUser, WriteFailed
from trimq.model import Caller
from trimq.offload import Offload
from trimq.storage.group_commit.passes import JointTicket, Ticket

_ADMINISTRATOR_REQUIRED = "the broker needs at least one administrator; make another user an administrator first"

# Continued by the name of the broker.
_FIRST_USER = (
    "define the first user from another machine (on the machine of the broker, use `trimq users bootstrap NAME`) of"
)

_MAX_TAGS = 32
_TAG = re.compile(r"[a-zA-Z0-9._-]{1,100}")

OnDefined = Callable[[Ticket | Refusal], None]


class _Derived(NamedTuple):
    """Made from a password, a secret, or both. The password's parts are empty if it does not change."""

    password_hash: str = ""
    guest_hash: str = ""
    scram: Sequence[ScramCredential] = ()
    sealed: SigningSecret | None = None


class UserApi:
    """If there are users, at least one of them must be an administrator; otherwise nobody could define users any
    more. The first user is defined from the broker's own machine: whoever comes first over the network must not take
    the broker over."""

    def __init__(
        self, access: Access, credentials: Credentials, limits: TenantLimits, offload: Offload, user_limit: int
    ) -> None:
        self._limits = limits
        self._access = access
        self._credentials = credentials
        self._user_limit = user_limit
        self._offload = offload

    def all(self, caller: Caller) -> list[User]:
        self._access.require(caller, Action.ADMINISTER, BROKER)
        return self._access.users()

    def define(
        self,
        caller: Caller,
        name: str,
        password: str | None,
        is_administrator: bool | None,
        done: OnDefined,
        secret: str | None = None,
        tags: Sequence[str] | None = None,
    ) -> None:
        """Creates or changes a user; None leaves a value unchanged, an empty `secret` (for signed requests) removes it.
        Calls `done` now or later with the ticket or the refusal."""
        self._require_change(caller)
        known = self._find(name)
        if known is None and password is None:
            raise InvalidSetting("password", "a new user needs one (trimq users set reads it from TRIMQ_NEW_PASSWORD)")
        if known is None and len(self._access.users()) >= self._user_limit:
            raise LimitReached("users", self._user_limit, "limits.users")
        if is_administrator is None:
            is_administrator = known is not None and known.is_administrator
        keeps_guest = self.is_first_beside_guest(name)
        if not keeps_guest:
            self._require_administrator(name, is_administrator)
        kept_tags = () if known is None else known.tags
        chosen_tags = kept_tags if tags is None else _checked_tags(tags)
        if password is None and not secret:
            assert known is not None
            ended = [] if secret is None else self._credentials.secrets.delete(name)
            changed = User(name, known.password_hash, is_administrator, chosen_tags)
            ticket = JointTicket([*ended, self._access.put_user(changed)])
            self._record(caller, changed, known, is_secret_changed=secret is not None)
            done(ticket)
            return

        def derived(result: object, error: BaseException | None) -> None:
            try:
                if not isinstance(result, _Derived):
                    raise WriteFailed(f"the key that encrypts secrets: {error}")
                self._require_change(caller)  # rights may have changed meanwhile
                before = self._find(name)
                ticket = self._store(name, is_administrator, chosen_tags, result, secret)
                after = User(name, "", is_administrator, chosen_tags)
                self._record(caller, after, before, bool(result.password_hash), secret is not None)
                done(ticket)
            except Refusal as refusal:
                done(refusal)

        self._offload(self._derivation(name, password, secret, keeps_guest), derived)

    def _record(
        self,
        caller: Caller,
        user: User,
        before: User | None,
        is_password_changed: bool = False,
        is_secret_changed: bool = False,
    ) -> None:
        changed = [
            *(["administrator"] if before is None or before.is_administrator != user.is_administrator else ()),
            *(["tags"] if user.tags != (() if before is None else before.tags) else ()),
            *(["password"] if is_password_changed else ()),
            *(["secret"] if is_secret_changed else ()),
        ]
        self._access.audit.changed(
            caller,
            "create" if before is None else "alter",
            "user",
            user.name,
            administrator=user.is_administrator,
            changed=changed,
        )

    def _derivation(
        self, name: str, password: str | None, secret: str | None, keeps_guest: bool
    ) -> Callable[[], _Derived]:
        """Returns the slow work, to be done off the event loop."""
        salt, guest_salt, scram_salt = (self._access.new_salt() for _ in range(3))
        seal = self._credentials.secrets.begin_seal(name, secret) if secret else None

        def derive() -> _Derived:
            sealed = None if seal is None else seal()
            if password is None:
                return _Derived(sealed=sealed)
            guest_hash = hash_password(GUEST, guest_salt) if keeps_guest else ""
            scram = credentials_of_password(name, password, scram_salt)
            return _Derived(hash_password(password, salt), guest_hash, scram, sealed)

        return derive

    def _store(
        self, name: str, is_administrator: bool, tags: tuple[str, ...], derived: _Derived, secret: str | None
    ) -> Ticket:
        known, users = self._find(name), []
        if self.is_first_beside_guest(name):
            users.append(User(GUEST, derived.guest_hash, True))
        else:
            self._require_administrator(name, is_administrator)
        if known is None and not derived.password_hash:
            raise UnknownUser(name)  # removed meanwhile
        password_hash = derived.password_hash or (known.password_hash if known else "")
        users.append(User(name, password_hash, is_administrator, tags))
        tickets = self._credentials.replace_password(derived.scram)
        if derived.sealed is not None:
            tickets.append(self._credentials.secrets.put(derived.sealed))
        elif secret == "":
            tickets += self._credentials.secrets.delete(name)
        return JointTicket([*tickets, *(self._access.put_user(user) for user in users)])

    def with_secrets(self, caller: Caller) -> frozenset[str]:
        """Returns the names of the users that have a secret."""
        self._access.require(caller, Action.ADMINISTER, BROKER)
        return frozenset(self._credentials.secrets.users())

    def is_first_beside_guest(self, name: str) -> bool:
        """True if no user is defined and `name` is not `guest`. Defining it then defines `guest` too, an administrator
        on the same machine until it is deleted, as in RabbitMQ: clients that use it are not locked out by surprise."""
        return name != GUEST and not self._access.is_enforced

    def restore(
        self,
        caller: Caller,
        users: Sequence[User],
        rights: Sequence[Right],
        entries: Sequence[AclEntry] = (),
        topic_permissions: Sequence[TopicPermission] = (),
        limits: Mapping[str, Mapping[str, int]] = MappingProxyType({}),
    ) -> list[Ticket]:
        """Creates users from password hashes, grants their rights, sets their limits and adds access control
        entries."""
        self._require_change(caller)
        after = {user.name: user for user in (*self._access.users(), *users)}
        if len(after) > self._user_limit:
            raise LimitReached("users", self._user_limit, "limits.users")
        if after and not any(user.is_administrator for user in after.values()):
            raise InvalidSetting("administrator", _ADMINISTRATOR_REQUIRED)
        for name in [
            *(right.principal for right in rights),
            *(permission.principal for permission in topic_permissions),
            *limits,
        ]:
            if name not in after:
                raise UnknownUser(name)
        for user in users:
            _checked_tags(user.tags)
        for entry in entries:
            check_entry(entry)
        changed = {user.name for user in users} - {user.name for user in self._access.users() if user in users}
        added = [
            *(ticket for name in changed for ticket in self._credentials.end_password(name)),
            *(self._access.put_user(user) for user in users),
            *(self._access.grant(right) for right in rights),
            *(self._access.entries.put(entry) for entry in entries),
            *(self._access.topic_permissions.put(permission) for permission in topic_permissions),
            *(self._limits.change(Tenant.USER, name, changes) for name, changes in limits.items()),
        ]
        self._record_restored(caller, users, rights, entries, topic_permissions, limits)
        return [ticket for ticket in added if ticket is not None]

    def _record_restored(
        self,
        caller: Caller,
        users: Sequence[User],
        rights: Sequence[Right],
        entries: Sequence[AclEntry],
        topic_permissions: Sequence[TopicPermission],
        limits: Mapping[str, Mapping[str, int]],
    ) -> None:
        changed = self._access.audit.changed
        for user in users:
            changed(caller, "restore", "user", user.name, administrator=user.is_administrator)
        for right in rights:
            self._record_permission(caller, "restore", right)
        for entry in entries:
            self._access.audit.entry_changed(caller, "restore", entry)
        for permission in topic_permissions:
            name, namespace = permission.principal, permission.namespace
            changed(caller, "restore", "topic-permission", name, namespace, exchange=permission.exchange)
        for name, values in limits.items():
            changed(caller, "restore", "user-limit", name, limits=dict(values))

    def _record_permission(self, caller: Caller, action: str, right: Right) -> None:
        patterns = {"configure": right.configure, "write": right.write, "read": right.read}
        self._access.audit.changed(caller, action, "permission", right.principal, right.namespace, patterns=patterns)

    def remove(self, caller: Caller, name: str) -> Ticket:
        """Removes a user with all rights and closes the user's connections."""
        self._access.require(caller, Action.ADMINISTER, BROKER)
        if self._find(name) is None:
            raise UnknownUser(name)
        if len(self._access.users()) > 1 or self._access.is_login_required:
            self._require_administrator(name, False)
        limits = self._limits.forget(Tenant.USER, name)
        forgotten = [] if limits is None else [limits]
        ticket = JointTicket([*self._credentials.delete_all(name), *forgotten, self._access.remove_user(name)])
        self._access.audit.changed(caller, "delete", "user", name)
        return ticket

    def _require_change(self, caller: Caller) -> None:
        self._access.require(caller, Action.ADMINISTER, BROKER)
        if not self._access.is_enforced and caller.address and not is_loopback(caller.address):
            self._access.audit.denied(caller, Action.ADMINISTER, BROKER)
            raise AccessDenied(caller.principal, _FIRST_USER, str(BROKER), BROKER.name, BROKER.namespace)

    def _find(self, name: str) -> User | None:
        return next((user for user in self._access.users() if user.name == name), None)

    def _require_administrator(self, changed: str, is_administrator: bool) -> None:
        others = any(user.is_administrator for user in self._access.users() if user.name != changed)
        if not is_administrator and not others:
            raise InvalidSetting("administrator", _ADMINISTRATOR_REQUIRED)

    def has_tag(self, caller: Caller, tag: str) -> bool:
        """Returns whether the caller has this tag."""
        return self._access.has_tag(caller.principal, tag)

    # -- topic permissions

    def topic_permissions(self, caller: Caller) -> list[TopicPermission]:
        self._access.require(caller, Action.ADMINISTER, BROKER)
        return self._access.topic_permissions.all()

    def grant_topic(self, caller: Caller, permission: TopicPermission) -> Ticket:
        """Replaces the user's topic permission for this exchange, which need not exist."""
        self._access.require(caller, Action.ADMINISTER, BROKER)
        if self._find(permission.principal) is None:
            raise UnknownUser(permission.principal)
        if not permission.exchange:
            raise InvalidSetting("exchange", "give the name of a topic exchange")
        ticket = self._access.topic_permissions.put(permission)
        name, namespace = permission.principal, permission.namespace
        patterns = {"exchange": permission.exchange, "write": permission.write, "read": permission.read}
        self._access.audit.changed(caller, "grant", "topic-permission", name, namespace, patterns=patterns)
        return ticket

    def revoke_topic(self, caller: Caller, name: str, namespace: str, exchange: str | None) -> Ticket | None:
        """Removes the user's topic permission for this exchange; for all exchanges of the namespace if it is None."""
        self._access.require(caller, Action.ADMINISTER, BROKER)
        if self._find(name) is None:
            raise UnknownUser(name)

        def is_cleared(permission: TopicPermission) -> bool:
            is_of_exchange = exchange is None or permission.exchange == exchange
            return permission.principal == name and permission.namespace == namespace and is_of_exchange

        cleared = self._access.topic_permissions.clear(is_cleared)
        if cleared:
            self._access.audit.changed(caller, "revoke", "topic-permission", name, namespace, exchange=exchange)
        return JointTicket(cleared) if cleared else None

    # -- rights

    def rights(self, caller: Caller) -> list[Right]:
        self._access.require(caller, Action.ADMINISTER, BROKER)
        return self._access.rights()

    def grant(self, caller: Caller, right: Right) -> Ticket:
        """Replaces the user's rights in this namespace. Effective at once, on open connections too."""
        self._access.require(caller, Action.ADMINISTER, BROKER)
        if self._find(right.principal) is None:
            raise UnknownUser(right.principal)
        ticket = self._access.grant(right)
        self._record_permission(caller, "grant", right)
        return ticket

    def revoke(self, caller: Caller, name: str, namespace: str) -> Ticket | None:
        self._access.require(caller, Action.ADMINISTER, BROKER)
        if self._find(name) is None:
            raise UnknownUser(name)
        ticket = self._access.revoke(name, namespace)
        if ticket is not None:
            self._access.audit.changed(caller, "revoke", "permission", name, namespace)
        return ticket


def _checked_tags(tags: Sequence[str]) -> tuple[str, ...]:
    if len(tags) > _MAX_TAGS or not all(_TAG.fullmatch(tag) for tag in tags):
        raise InvalidSetting("tags", f"give at most {_MAX_TAGS} words of letters, digits, '.', '_' and '-'")
    return tuple(dict.fromkeys(tags))
