"""Authentication by user name and password, and the namespaces that a user may enter. Compares passwords off the event
loop; `access` decides on the user's actions."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable
from ipaddress import ip_address

from trimq.core.security.access import Access
from trimq.core.security.login_queue import IsWanted, LoginQueue
from trimq.core.security.passwords import matches
from trimq.model import Caller

# As in RabbitMQ: a predefined user, by default for clients on the same machine only.
GUEST = "guest"

_REMEMBERED = 1000
_KEY_BYTES = 32


class Authenticator:
    def __init__(
        self,
        access: Access,
        logins: LoginQueue,
        random_bytes: Callable[[int], bytes],
        loopback_users: frozenset[str] = frozenset([GUEST]),
    ) -> None:
        """`loopback_users`: may log in from the broker's machine only."""
        self._loopback_users = loopback_users
        self._access = access
        self._logins = logins
        # A password that was correct once is recognised without the 50 ms of a comparison. The cache stores a digest
        # under a random key of this process, and the hash that the password matched.
        self._key = random_bytes(_KEY_BYTES)
        self._known: dict[tuple[str, str], bytes] = {}

    def check(
        self,
        name: str,
        password: str,
        address: str,
        done: Callable[[bool], None],
        is_wanted: IsWanted = lambda: True,
    ) -> None:
        """Calls `done(is_valid)` on the loop, now or later. `is_wanted` returns False once the client is gone. After
        several failures of a name from an address, the next ones wait, right or wrong; if too many wait, they are
        invalid without a check."""
        if not self.is_admitted(name, address):
            done(False)
        elif not self._access.is_enforced:
            done(name == GUEST and password == GUEST)
        else:
            self._compare(name, password, address, done, is_wanted)

    def is_admitted(self, name: str, address: str) -> bool:
        """Returns whether a user of this name may log in from `host:port` at all."""
        return name not in self._loopback_users or is_loopback(address)

    def admits_certificate(self, name: str, address: str) -> bool:
        """Returns whether the owner of a verified certificate of this name is logged in: the user must be defined.
        While every client may do everything, any name will do."""
        if not self.is_admitted(name, address):
            return False
        return not self._access.is_enforced or self._access.is_user(name)

    def check_proof(
        self,
        name: str,
        address: str,
        is_right: Callable[[], bool],
        done: Callable[[bool], None],
        is_wanted: IsWanted = lambda: True,
    ) -> None:
        """Same as `check` for a client that proves that it knows a secret of this user. `is_right` checks the proof; it
        must not take long."""
        if not self.is_admitted(name, address):
            done(False)
        else:
            self._logins.check_on_loop(name, address, is_right, done, is_wanted)

    def _compare(
        self, name: str, password: str, address: str, done: Callable[[bool], None], is_wanted: IsWanted
    ) -> None:
        is_user = self._access.is_user(name)
        hashed = self._access.password_hash(name)
        digest = hmac.digest(self._key, password.encode("utf-8", "surrogatepass"), hashlib.sha256)
        known = self._known.get((name, hashed))
        is_right_now = is_user and known is not None and hmac.compare_digest(known, digest)
        if is_right_now and not self._logins.is_delayed(name, address):
            done(True)
            return

        def compared(is_right: bool) -> None:
            if is_right:
                if len(self._known) >= _REMEMBERED:
                    self._known.clear()
                self._known[name, hashed] = digest
            done(is_right)

        def compare() -> bool:
            return matches(password, hashed) and is_user

        self._logins.check((name, hashed, digest), name, address, compare, compared, is_wanted)

    @property
    def revision(self) -> int:
        """Increases with every change of users and rights."""
        return self._access.revision

    @property
    def is_login_required(self) -> bool:
        """False while every client may do everything."""
        return self._access.is_enforced

    @property
    def admits_only_users(self) -> bool:
        """True if a client that does not log in may do nothing, also while no user is defined."""
        return self._access.is_login_required

    @property
    def has_users(self) -> bool:
        """True if a user is defined who could log in."""
        return bool(self._access.users())

    def must_log_in(self, anonymous: str) -> bool:
        """Returns whether a client has to log in before it may do anything: `anonymous`, as which it acts before, has
        no right at all."""
        return not self._access.is_known(Caller(anonymous, "", "", ""))

    def on_removed(self, listener: Callable[[str], None]) -> None:
        """Calls `listener` with the name of every user that is removed."""
        self._access.on_removed(listener)

    def on_password_changed(self, listener: Callable[[str], None]) -> None:
        """Calls `listener` with the name of every user whose password is changed."""
        self._access.on_password_changed(listener)

    def on_rights_changed(self, listener: Callable[[str | None], None]) -> None:
        """Calls `listener` with the principal whose rights have changed; None: those of all may have."""
        self._access.on_rights_changed(listener)

    def may_access_namespace(self, caller: Caller, namespace: str) -> bool:
        """Returns whether a user has any right in the namespace. While every client may do everything, each has."""
        if self._access.may_enter(caller.principal, namespace):
            return True
        self._access.audit.denied_on(caller, "open", "vhost", namespace)
        return False


def is_loopback(address: str) -> bool:
    """Returns whether `host:port` is on this machine."""
    host = address.rpartition(":")[0].strip("[]")
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
