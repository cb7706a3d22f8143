"""Decides who may do what, for all protocols: from users, RabbitMQ's permissions and access control entries. Front-ends
authenticate clients."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from trimq.core.metadata.catalogue import Catalogue
from trimq.core.security.acl_entries import EVERYBODY, AclEntries, host_of
from trimq.core.security.audit_log import AuditLog, action_name
from trimq.core.security.passwords import SALT_BYTES, hash_password, matches
from trimq.core.security.resources import (
    BROKER,
    Action,
    Resource,
    ResourceKind,
    group_resource,
    transaction_resource,
)
from trimq.core.security.rights import Right, Rights
from trimq.core.security.topic_permissions import TopicPermissions
from trimq.core.security.users import User, Users
from trimq.errors import AccessDenied
from trimq.errors.queues import TopicAccessDenied
from trimq.model import ANONYMOUS, DEFAULT_NAMESPACE, SYSTEM, Caller, TopicName
from trimq.storage.group_commit.passes import Ticket

__all__ = [
    "BROKER",
    "Access",
    "Action",
    "Resource",
    "ResourceKind",
    "Right",
    "User",
    "group_resource",
    "transaction_resource",
]

_CACHED_DECISIONS = 10_000


class Access:
    """Unless logins are required, every caller may do everything while no user is defined. Otherwise an action needs a
    permission or an entry that allows it, and no entry that denies it; administrators may do everything. Where logins
    are required, a caller that did not log in may do nothing."""

    def __init__(
        self,
        catalogue: Catalogue,
        random_bytes: Callable[[int], bytes],
        audit: AuditLog,
        is_login_required: bool = False,
    ) -> None:
        self.audit = audit
        """Record of refusals, which are written here, and of changes, which are written by who makes them."""
        self.is_login_required = is_login_required
        """True if only users may do anything, also while none is defined."""
        self._random_bytes = random_bytes
        self._users = Users(catalogue, random_bytes)
        self._rights = Rights(catalogue)
        self.entries = AclEntries(catalogue)
        self.topic_permissions = TopicPermissions(catalogue)
        self._removed: list[Callable[[str], None]] = []
        self._password_changed: list[Callable[[str], None]] = []
        self._rights_changed: list[Callable[[str | None], None]] = []
        self._decisions: dict[tuple[str, str, Action, Resource], bool] = {}
        self.is_enforced = is_login_required or bool(self._users)
        """False while every caller may do everything."""
        self.revision = 0
        """Increases with every change of users and rights."""
        self._users.on_change(self._user_changed)
        self._rights.on_change(self._right_changed)
        self.entries.on_change(self._right_changed)

    # -- decisions

    def allowed(self, caller: Caller, action: Action, resource: Resource) -> bool:
        if not self.is_enforced or caller is SYSTEM:
            return True
        host = host_of(caller.address) if self.entries.depend_on_hosts else ""
        decision = self._decisions.get((caller.principal, host, action, resource))
        if decision is None:
            decision = self._decide(caller.principal, host, action, resource)
            if len(self._decisions) >= _CACHED_DECISIONS:
                self._decisions.clear()
            self._decisions[caller.principal, host, action, resource] = decision
        return decision

    def require(self, caller: Caller, action: Action, resource: Resource) -> None:
        if self.is_enforced and not self.allowed(caller, action, resource):
            self.audit.denied(caller, action, resource)
            raise AccessDenied(caller.principal, action.name.lower(), str(resource), resource.name, resource.namespace)

    def require_any(self, caller: Caller, action: Action, resources: Sequence[Resource]) -> None:
        """Raises AccessDenied for the last resource unless the action is allowed on one of them."""
        if self.is_enforced and not any(self.allowed(caller, action, resource) for resource in resources[:-1]):
            self.require(caller, action, resources[-1])

    def require_topic(self, caller: Caller, action: Action, name: TopicName) -> None:
        """Same as `require`, for each message that names its topic: allocates nothing while everything is allowed."""
        if self.is_enforced:
            self.require(caller, action, Resource(ResourceKind.TOPIC, name.namespace, name.name))

    def require_group(self, caller: Caller, action: Action, group: str) -> None:
        """Same as `require`, for a consumer group: allocates nothing while everything is allowed."""
        if self.is_enforced:
            self.require(caller, action, group_resource(group))

    def require_routing_key(self, caller: Caller, action: Action, exchange: str, key: str) -> None:
        """Raises TopicAccessDenied if a topic permission of the caller, be it an administrator, does not allow this key
        of a topic exchange."""
        if not self.topic_permissions.has_any or not self.is_enforced:
            return
        principal, namespace = caller.principal, caller.namespace
        if not self.topic_permissions.allows(principal, namespace, exchange, action, key):
            self.audit.denied_on(caller, action_name(action), "routing-key", key, namespace)
            raise TopicAccessDenied(principal, action.name.lower(), key, exchange, namespace)

    def require_known(self, caller: Caller) -> None:
        """Raises AccessDenied if the caller is no user and has no right at all. For requests that concern no topic and
        no group."""
        if self.is_enforced and not self.is_known(caller):
            self.audit.denied(caller, Action.DESCRIBE, BROKER)
            raise AccessDenied(caller.principal, "describe", str(BROKER), BROKER.name, BROKER.namespace)

    def is_known(self, caller: Caller) -> bool:
        """Returns whether the caller is a user or has any right."""
        return not self.is_enforced or caller is SYSTEM or self._is_known(caller.principal)

    def may_write_any_topic(self, caller: Caller) -> bool:
        """Returns whether the caller may write at least one topic that exists or could exist."""
        if not self.is_enforced or caller is SYSTEM:
            return True
        name = caller.principal
        if self._is_locked_out(name):
            return False
        if self._is_administrator(name):
            return True
        verdict = self.entries.may_on_any(name, host_of(caller.address), Action.WRITE, ResourceKind.TOPIC)
        return self._rights.may_write_any(name, DEFAULT_NAMESPACE) if verdict is None else verdict

    def may_enter(self, principal: str, namespace: str) -> bool:
        """Returns whether the principal has any right in the namespace."""
        if not self.is_enforced or self._is_administrator(principal):
            return True
        return self._rights.has(principal, namespace) or self.entries.may_enter(principal, namespace)

    def _is_known(self, principal: str) -> bool:
        if self._is_locked_out(principal):
            return False
        if principal in self._users or principal in self._rights.principals:
            return True
        return self.entries.has_principal(principal) or self.entries.may_enter(principal, DEFAULT_NAMESPACE)

    def _is_locked_out(self, principal: str) -> bool:
        return self.is_login_required and principal == ANONYMOUS

    def _is_administrator(self, principal: str) -> bool:
        user = self._users.find(principal)
        return user is not None and user.is_administrator

    def _decide(self, principal: str, host: str, action: Action, resource: Resource) -> bool:
        if self._is_locked_out(principal):
            return False
        if self._is_administrator(principal):
            return True
        if action is Action.ADMINISTER:
            return False
        verdict = self.entries.verdict(principal, host, action, resource)
        return self._rights.allows(principal, action, resource) if verdict is None else verdict

    # -- users

    def users(self) -> list[User]:
        return self._users.all()

    def is_user(self, name: str) -> bool:
        return name in self._users

    def has_tag(self, name: str, tag: str) -> bool:
        user = self._users.find(name)
        return user is not None and tag in user.tags

    def password_hash(self, name: str) -> str:
        """Returns the hash to pass to `matches`. For an unknown user, it is a hash of no known password."""
        return self._users.password_hash(name)

    def verify(self, name: str, password: str) -> bool:
        """Takes 50 ms on purpose. On the event loop, run `matches(password, password_hash(name))` in a thread."""
        return matches(password, self.password_hash(name)) and name in self._users

    def define_user(self, name: str, password: str, is_administrator: bool = False) -> Ticket:
        """Creates a user or changes its password. Takes 50 ms, as `verify` does."""
        return self.put_user(User(name, hash_password(password, self.new_salt()), is_administrator))

    def new_salt(self) -> bytes:
        return self._random_bytes(SALT_BYTES)

    def put_user(self, user: User) -> Ticket:
        return self._users.put(user)

    def on_removed(self, listener: Callable[[str], None]) -> None:
        """Calls `listener` with the name of every user that is removed."""
        self._removed.append(listener)

    def on_password_changed(self, listener: Callable[[str], None]) -> None:
        """Calls `listener` with the name of every user whose password is changed."""
        self._password_changed.append(listener)

    def on_rights_changed(self, listener: Callable[[str | None], None]) -> None:
        """Calls `listener` with the principal whose rights have changed; with None if those of all may have, because
        the first user was defined or the last one removed, or an entry for everybody changed."""
        self._rights_changed.append(listener)

    def remove_user(self, name: str) -> Ticket:
        """Removes the user and all its rights. After the last user is removed, every caller may do everything again,
        unless logins are required."""
        for right in self.rights() if name in self._users else ():
            if right.principal == name:
                self.revoke(name, right.namespace)
        if name in self._users:
            self.entries.forget(name)
            self.topic_permissions.clear(lambda permission: permission.principal == name)
        return self._users.remove(name)

    # -- permissions of RabbitMQ

    def rights(self) -> list[Right]:
        return self._rights.all()

    def grant(self, right: Right) -> Ticket:
        """Replaces the principal's permissions in this namespace."""
        return self._rights.grant(right)

    def revoke(self, principal: str, namespace: str) -> Ticket | None:
        """Removes the principal's permissions in this namespace. Returns None if there were none."""
        return self._rights.revoke(principal, namespace)

    # -- changes

    def _user_changed(self, name: str, before: User | None, after: User | None) -> None:
        self._forget_decisions()
        was_enforced = self.is_enforced
        self.is_enforced = self.is_login_required or bool(self._users)
        if after is None:
            for listener in self._removed:
                listener(name)
        elif before is not None and before.password_hash != after.password_hash:
            for listener in self._password_changed:
                listener(name)
        self._tell_rights_changed(name if self.is_enforced == was_enforced else None)

    def _right_changed(self, principal: str) -> None:
        self._forget_decisions()
        self._tell_rights_changed(None if principal == EVERYBODY else principal)

    def _tell_rights_changed(self, principal: str | None) -> None:
        for listener in self._rights_changed:
            listener(principal)

    def _forget_decisions(self) -> None:
        self._decisions.clear()
        self.revision += 1
