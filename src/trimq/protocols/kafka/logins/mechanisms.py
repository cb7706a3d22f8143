"""SASL mechanisms that Kafka clients can log in with: PLAIN and SCRAM. Each login is an exchange of tokens; an exchange
knows no Kafka request."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import NamedTuple, Protocol

from trimq.core.security.authentication import Authenticator
from trimq.core.security.login_log import LoginLog
from trimq.core.security.scram_credentials import MECHANISMS as SCRAM
from trimq.core.security.scram_credentials import ScramCredential, ScramCredentials
from trimq.core.security.scram_exchange import BadScramMessage, ScramExchange, WrongProof

PLAIN = "PLAIN"

_NONCE_BYTES = 24
_OTHER_ID = "Authentication failed: Client requested an authorization id that is different from username"


class Continued(NamedTuple):
    """The client must send another token."""

    token: bytes


class LoggedIn(NamedTuple):
    principal: str
    token: bytes = b""
    expires_at_ms: int | None = None
    """Wall time until which the credential is valid. None: no limit."""


class Rejected(NamedTuple):
    user: str
    """Name that the client gave; empty if it gave none."""
    reason: str
    """For the log."""
    answer: str | None = None
    """For the client. None: a text that does not reveal the reason."""


Outcome = Continued | LoggedIn | Rejected


class Exchange(Protocol):
    def respond(self, token: bytes, done: Callable[[Outcome], None]) -> None:
        """Calls `done` with the outcome of this token, now or later, on the loop."""


class Mechanisms:
    def __init__(
        self,
        authenticator: Authenticator,
        scram: ScramCredentials,
        random_bytes: Callable[[int], bytes],
        login_log: LoginLog,
    ) -> None:
        self.login_log = login_log
        self._authenticator = authenticator
        self._scram = scram
        self._random_bytes = random_bytes
        self.names = [PLAIN, *SCRAM]

    def begin(self, mechanism: str, address: str) -> Exchange:
        """Starts a login of a client at this address with one of `names`."""
        if mechanism in SCRAM:
            nonce = base64.b64encode(self._random_bytes(_NONCE_BYTES)).decode("ascii")
            find = _CredentialLookup(self._scram, mechanism)
            return _Scram(ScramExchange(mechanism, find, nonce), self._authenticator, address)
        return _Plain(self._authenticator, address)


class _Plain:
    def __init__(self, authenticator: Authenticator, address: str) -> None:
        self._authenticator = authenticator
        self._address = address

    def respond(self, token: bytes, done: Callable[[Outcome], None]) -> None:
        read = read_plain(token)
        if isinstance(read, Rejected):
            done(read)
            return
        name, password = read

        def checked(is_right: bool) -> None:
            wrong = Rejected(
                name, "unknown user or wrong password", "Authentication failed: Invalid username or password"
            )
            done(LoggedIn(name) if is_right else wrong)

        self._authenticator.check(name, password, self._address, checked)


def read_plain(token: bytes) -> tuple[str, str] | Rejected:
    """Returns name and password of a PLAIN token (RFC 4616): authorization id, name and password, separated by NUL."""
    try:
        parts = bytes(token).decode("utf-8").split("\0")
    except UnicodeDecodeError:
        return Rejected("", "the token is not UTF-8")
    if len(parts) != 3:
        text = f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}"
        return Rejected("", text, text)
    acts_for, name, password = parts
    if not name:
        return Rejected("", "no user name", "Authentication failed: username not specified")
    if not password:
        return Rejected(name, "no password", "Authentication failed: password not specified")
    if acts_for not in ("", name):
        return Rejected(name, "the authorization id is that of another user", _OTHER_ID)
    return name, password


class _CredentialLookup:
    def __init__(self, credentials: ScramCredentials, mechanism: str) -> None:
        self._credentials = credentials
        self._mechanism = mechanism

    def __call__(self, user: str) -> ScramCredential:
        found = self._credentials.find(user, self._mechanism)
        return self._credentials.unknown(user, self._mechanism) if found is None else found


class _Scram:
    def __init__(self, exchange: ScramExchange, authenticator: Authenticator, address: str) -> None:
        self._exchange = exchange
        self._authenticator = authenticator
        self._address = address

    def respond(self, token: bytes, done: Callable[[Outcome], None]) -> None:
        done(self._outcome(token))

    def _outcome(self, token: bytes) -> Outcome:
        exchange = self._exchange
        try:
            if not exchange.is_started:
                reply = exchange.start(token)
                if exchange.acts_for not in ("", exchange.user):
                    return Rejected(exchange.user, "the authorization id is that of another user", _OTHER_ID)
                return Continued(reply)
            proof = exchange.finish(token)
        except BadScramMessage as error:
            return Rejected(exchange.user, str(error))
        except WrongProof:
            return Rejected(exchange.user, "unknown user or wrong password")
        if not self._authenticator.is_admitted(exchange.user, self._address):
            return Rejected(exchange.user, "this user may log in from the broker's machine only")
        return LoggedIn(exchange.user, proof)
