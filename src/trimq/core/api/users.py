"""Operations on users and their rights, reached as `broker.users`. Each checks the caller's rights, then changes the
core's one access table; passwords are hashed off the event loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from trimq.core.security.access import BROKER, Access, Action, Right, User
from trimq.core.security.acl_entries import AclEntry, check_entry
from trimq.core.security.authentication import GUEST, is_loopback
from trimq.core.security.credentials import Credentials
from trimq.core.security.passwords import hash_password
from trimq.core.security.scram_credentials import ScramCredential, credentials_of_password
from trimq.core.security.signing_secrets import SigningSecret
from trimq.errors import AccessDenied, InvalidSetting, LimitReached, Refusal, UnknownUser, WriteFailed
from trimq.model import Caller
from trimq.offload import Offload
from trimq.storage.group_commit.passes import JointTicket, Ticket

_ADMINISTRATOR_REQUIRED = "the broker needs at least one administrator; make another user an administrator first"

# Continued by the name of the broker.
_FIRST_USER = (
    "define the first user from another machine (on the machine of the broker, use `trimq users bootstrap NAME`) of"
)

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

    def __init__(self, access: Access, credentials: Credentials, offload: Offload, user_limit: int) -> None:
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
        if password is None and not secret:
            assert known is not None
            ended = [] if secret is None else self._credentials.secrets.delete(name)
            done(JointTicket([*ended, self._access.put_user(User(name, known.password_hash, is_administrator))]))
            return

        def derived(result: object, error: BaseException | None) -> None:
            try:
                if not isinstance(result, _Derived):
                    raise WriteFailed(f"the key that encrypts secrets: {error}")
                self._require_change(caller)  # rights may have changed meanwhile
                done(self._store(name, is_administrator, result, secret))
            except Refusal as refusal:
                done(refusal)

        self._offload(self._derivation(name, password, secret, keeps_guest), derived)

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

    def _store(self, name: str, is_administrator: bool, derived: _Derived, secret: str | None) -> Ticket:
        known, users = self._find(name), []
        if self.is_first_beside_guest(name):
            users.append(User(GUEST, derived.guest_hash, True))
        else:
            self._require_administrator(name, is_administrator)
        if known is None and not derived.password_hash:
            raise UnknownUser(name)  # removed meanwhile
        users.append(User(name, derived.password_hash or (known.password_hash if known else ""), is_administrator))
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
        self, caller: Caller, users: Sequence[User], rights: Sequence[Right], entries: Sequence[AclEntry] = ()
    ) -> list[Ticket]:
        """Creates users from password hashes, grants their rights and adds access control entries."""
        self._require_change(caller)
        after = {user.name: user for user in (*self._access.users(), *users)}
        if len(after) > self._user_limit:
            raise LimitReached("users", self._user_limit, "limits.users")
        if after and not any(user.is_administrator for user in after.values()):
            raise InvalidSetting("administrator", _ADMINISTRATOR_REQUIRED)
        for right in rights:
            if right.principal not in after:
                raise UnknownUser(right.principal)
        for entry in entries:
            check_entry(entry)
        changed = {user.name for user in users} - {user.name for user in self._access.users() if user in users}
        added = [
            *(ticket for name in changed for ticket in self._credentials.end_password(name)),
            *(self._access.put_user(user) for user in users),
            *(self._access.grant(right) for right in rights),
            *(self._access.entries.put(entry) for entry in entries),
        ]
        return [ticket for ticket in added if ticket is not None]

    def remove(self, caller: Caller, name: str) -> Ticket:
        """Removes a user with all rights and closes the user's connections."""
        self._access.require(caller, Action.ADMINISTER, BROKER)
        if self._find(name) is None:
            raise UnknownUser(name)
        if len(self._access.users()) > 1 or self._access.is_login_required:
            self._require_administrator(name, False)
        return JointTicket([*self._credentials.delete_all(name), self._access.remove_user(name)])

    def _require_change(self, caller: Caller) -> None:
        self._access.require(caller, Action.ADMINISTER, BROKER)
        if not self._access.is_enforced and caller.address and not is_loopback(caller.address):
            raise AccessDenied(caller.principal, _FIRST_USER, str(BROKER), BROKER.name, BROKER.namespace)

    def _find(self, name: str) -> User | None:
        return next((user for user in self._access.users() if user.name == name), None)

    def _require_administrator(self, changed: str, is_administrator: bool) -> None:
        others = any(user.is_administrator for user in self._access.users() if user.name != changed)
        if not is_administrator and not others:
            raise InvalidSetting("administrator", _ADMINISTRATOR_REQUIRED)

    # -- rights

    def rights(self, caller: Caller) -> list[Right]:
        self._access.require(caller, Action.ADMINISTER, BROKER)
        return self._access.rights()

    def grant(self, caller: Caller, right: Right) -> Ticket:
        """Replaces the user's rights in this namespace. Effective at once, on open connections too."""
        self._access.require(caller, Action.ADMINISTER, BROKER)
        if self._find(right.principal) is None:
            raise UnknownUser(right.principal)
        return self._access.grant(right)

    def revoke(self, caller: Caller, name: str, namespace: str) -> Ticket | None:
        self._access.require(caller, Action.ADMINISTER, BROKER)
        if self._find(name) is None:
            raise UnknownUser(name)
        return self._access.revoke(name, namespace)
