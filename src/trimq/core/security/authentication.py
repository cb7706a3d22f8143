"""Who a client is when it comes with a name and a password, and which namespaces it may enter. Passwords are compared
off the event loop; what a user may do there is decided by `access`."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable
from ipaddress import ip_address

from trimq.core.security.access import Access
from trimq.core.security.passwords import matches
from trimq.offload import Offload

# As in RabbitMQ: known without being defined, but only to clients on the same machine.
GUEST = "guest"

_REMEMBERED = 1000
_KEY_BYTES = 32


class Authenticator:
    def __init__(self, access: Access, offload: Offload, random_bytes: Callable[[int], bytes]) -> None:
        self._access = access
        self._offload = offload
        # A password that was right once is recognised without the 50 ms that a guess costs. Kept is a digest under a
        # key of this process, next to the hash that it was right for.
        self._key = random_bytes(_KEY_BYTES)
        self._known: dict[tuple[str, str], bytes] = {}

    def check(self, name: str, password: str, address: str, done: Callable[[bool], None]) -> None:
        """`done(whether the login is right)` is called now or later, on the loop."""
        if name == GUEST and not is_loopback(address):
            done(False)
        elif not self._access.users():
            done(name == GUEST and password == GUEST)
        else:
            self._compare(name, password, done)

    def _compare(self, name: str, password: str, done: Callable[[bool], None]) -> None:
        is_user = any(user.name == name for user in self._access.users())
        hashed = self._access.password_hash(name)
        digest = hmac.digest(self._key, password.encode("utf-8", "surrogatepass"), hashlib.sha256)
        known = self._known.get((name, hashed))
        if is_user and known is not None and hmac.compare_digest(known, digest):
            done(True)
            return

        def compared(result: object, error: BaseException | None) -> None:
            is_right = error is None and result is True and is_user
            if is_right:
                if len(self._known) >= _REMEMBERED:
                    self._known.clear()
                self._known[name, hashed] = digest
            done(is_right)

        self._offload(lambda: matches(password, hashed), compared)

    @property
    def is_login_required(self) -> bool:
        """While no user is defined, nobody has to say who they are."""
        return bool(self._access.users())

    def on_removed(self, listener: Callable[[str], None]) -> None:
        """Call `listener` with the name of every user who is removed."""
        self._access.on_removed(listener)

    def may_access_namespace(self, name: str, namespace: str) -> bool:
        """Whether a user may do anything at all there. While nobody is defined, everyone may."""
        users = {user.name: user for user in self._access.users()}
        if not users:
            return True
        user = users.get(name)
        if user is None:
            return False
        return user.is_administrator or any(
            right.principal == name and right.namespace == namespace for right in self._access.rights()
        )


def is_loopback(address: str) -> bool:
    """Whether `host:port` is on this machine."""
    host = address.rpartition(":")[0].strip("[]")
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
