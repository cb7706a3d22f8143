"""Operations on users and their rights, reached as `broker.users`. Each checks the caller's rights, then changes the
core's one access table; passwords are hashed off the event loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from trimq.core.security.access import BROKER, Access, Action, Right, User
from trimq.core.security.acl_entries import AclEntry, check_entry
from trimq.core.security.authentication import GUEST, is_loopback
from trimq.core.security.passwords import hash_password
from trimq.errors import AccessDenied, InvalidSetting, Refusal, UnknownUser
from trimq.model import Caller
from trimq.offload import Offload
from trimq.storage.group_commit.passes import JointTicket, Ticket

_ADMINISTRATOR_REQUIRED = "the broker needs at least one administrator; make another user an administrator first"

# Continued by the name of the broker.
_FIRST_USER = (
    "define the first user from another machine (on the machine of the broker, use `trimq users bootstrap NAME`) of"
)

OnDefined = Callable[[Ticket | Refusal], None]


class UserApi:
    """If there are users, at least one of them must be an administrator; otherwise nobody could define users any
    more. The first user is defined from the broker's own machine: whoever comes first over the network must not take
    the broker over."""

    def __init__(self, access: Access, offload: Offload) -> None:
        self._access = access
        self._offload = offload

    def all(self, caller: Caller) -> list[User]:
        self._access.require(caller, Action.ADMINISTER, BROKER)
        return self._access.users()

    def define(
        self, caller: Caller, name: str, password: str | None, is_administrator: bool | None, done: OnDefined
    ) -> None:
        """Creates or changes a user; None leaves a value unchanged. Calls `done` now or later with the ticket or the
        refusal."""
        self._require_change(caller)
        known = self._find(name)
        if known is None and password is None:
            raise InvalidSetting("password", "a new user needs a password")
        if is_administrator is None:
            is_administrator = known is not None and known.is_administrator
        keeps_guest = self.is_first_beside_guest(name)
        if not keeps_guest:
            self._require_administrator(name, is_administrator)
        if password is None:
            assert known is not None
            done(self._access.put_user(User(name, known.password_hash, is_administrator)))
            return
        salt, guest_salt = self._access.new_salt(), self._access.new_salt()

        def hashed(result: object, error: BaseException | None) -> None:
            assert isinstance(result, tuple), "hashing cannot fail"
            try:
                self._require_change(caller)  # rights may have changed meanwhile
                users = [User(name, result[0], is_administrator)]
                if self.is_first_beside_guest(name):
                    users.insert(0, User(GUEST, result[1], True))
                else:
                    self._require_administrator(name, is_administrator)
                done(JointTicket([self._access.put_user(user) for user in users]))
            except Refusal as refusal:
                done(refusal)

        def hash_passwords() -> tuple[str, str]:
            return hash_password(password, salt), hash_password(GUEST, guest_salt) if keeps_guest else ""

        self._offload(hash_passwords, hashed)

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
        if after and not any(user.is_administrator for user in after.values()):
            raise InvalidSetting("administrator", _ADMINISTRATOR_REQUIRED)
        for right in rights:
            if right.principal not in after:
                raise UnknownUser(right.principal)
        for entry in entries:
            check_entry(entry)
        added = [
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
        return self._access.remove_user(name)

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
