"""Login by signed requests: checks a signature against the secret of the user whom the request names."""

from __future__ import annotations

import hashlib
import hmac
from typing import NoReturn

from trimq.core.security.access import Access
from trimq.core.security.authentication import Authenticator
from trimq.core.security.login_log import LoginLog
from trimq.core.security.signing_secrets import SigningSecrets
from trimq.errors import LoginFailed

_MECHANISM = "HMAC-SHA1"
_NO_SECRET = b"\0" * 16


class Signatures:
    """`access.is_enforced`: logins are required. Public, since every message asks for it."""

    def __init__(
        self, authenticator: Authenticator, access: Access, secrets: SigningSecrets, login_log: LoginLog
    ) -> None:
        self._authenticator = authenticator
        self.access = access
        self._secrets = secrets
        self._login_log = login_log

    @property
    def is_login_required(self) -> bool:
        return self.access.is_enforced

    @property
    def revision(self) -> int:
        """Increases whenever a signature that was right may have become wrong, or is no longer ignored."""
        return self._secrets.revision + self.access.revision

    def is_right(self, user: str, signature: bytes, content: bytes, address: str) -> bool:
        """Returns whether `check` would raise nothing. Records nothing: for a fast path that falls back to `check`."""
        secret = self._secrets.secret_of(user)
        return (
            secret is not None
            and hmac.compare_digest(hmac.digest(secret, content, hashlib.sha1), signature)
            and self._authenticator.is_admitted(user, address)
        )

    def check(self, user: str, signature: bytes, content: bytes, address: str, protocol: str) -> None:
        """Raises LoginFailed unless `signature` is that of `content` by the secret of `user`."""
        secret = self._secrets.secret_of(user)
        expected = hmac.digest(secret or _NO_SECRET, content, hashlib.sha1)
        if secret is not None and hmac.compare_digest(expected, signature):
            if self._authenticator.is_admitted(user, address):
                return
            reason = "this user may log in from the broker's machine only"
        else:
            reason = "the user has no secret" if secret is None else "wrong signature"
        self.failed(user, address, protocol, reason)

    def failed(self, user: str, address: str, protocol: str, reason: str) -> NoReturn:
        """Records a login that is refused for this reason, and raises LoginFailed, which does not tell it."""
        self._login_log.failed(protocol, _MECHANISM, user, address, reason)
        raise LoginFailed

    def succeeded(self, user: str, address: str, protocol: str) -> None:
        self._login_log.succeeded(protocol, _MECHANISM, user, address)
