"""SASL mechanisms that Kafka clients can log in with: PLAIN, SCRAM and OAUTHBEARER. Each login is an exchange of
tokens; an exchange knows no Kafka request."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import NamedTuple, Protocol

from trimq.core.security.authentication import Authenticator
from trimq.core.security.bearer_tokens import BadToken, Bearer, BearerTokens
from trimq.core.security.login_log import LoginLog
from trimq.core.security.scram_credentials import MECHANISMS as SCRAM
from trimq.core.security.scram_credentials import ScramCredential, ScramCredentials
from trimq.core.security.scram_exchange import BadScramMessage, ScramExchange, WrongProof

PLAIN = "PLAIN"
OAUTHBEARER = "OAUTHBEARER"

_NONCE_BYTES = 24
_WRONG = "Authentication failed: Invalid username or password"
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
    def respond(self, token: bytes, done: Callable[[Outcome], None], is_wanted: Callable[[], bool]) -> None:
        """Calls `done` with the outcome of this token, now or later, on the loop. `is_wanted` returns False once the
        client is gone."""


class Mechanisms:
    def __init__(
        self,
        authenticator: Authenticator,
        scram: ScramCredentials,
        random_bytes: Callable[[int], bytes],
        login_log: LoginLog,
        bearer_tokens: BearerTokens | None,
    ) -> None:
        self.login_log = login_log
        self._authenticator = authenticator
        self._scram = scram
        self._random_bytes = random_bytes
        self._bearer_tokens = bearer_tokens
        self.names = [PLAIN, *SCRAM, *([] if bearer_tokens is None else [OAUTHBEARER])]

    def begin(self, mechanism: str, address: str) -> Exchange:
        """Starts a login of a client at this address with one of `names`."""
        if mechanism in SCRAM:
            nonce = base64.b64encode(self._random_bytes(_NONCE_BYTES)).decode("ascii")
            find = _CredentialLookup(self._scram, mechanism)
            return _Scram(ScramExchange(mechanism, find, nonce), self._authenticator, address)
        if mechanism == OAUTHBEARER:
            assert self._bearer_tokens is not None, "it is one of `names`"
            return _OAuthBearer(self._bearer_tokens, self._authenticator, address)
        return _Plain(self._authenticator, address)


class _Plain:
    def __init__(self, authenticator: Authenticator, address: str) -> None:
        self._authenticator = authenticator
        self._address = address

    def respond(self, token: bytes, done: Callable[[Outcome], None], is_wanted: Callable[[], bool]) -> None:
        read = read_plain(token)
        if isinstance(read, Rejected):
            done(read)
            return
        name, password = read

        def checked(is_right: bool) -> None:
            done(LoggedIn(name) if is_right else Rejected(name, "unknown user or wrong password", _WRONG))

        self._authenticator.check(name, password, self._address, checked, is_wanted)


def read_plain(token: bytes) -> tuple[str, str] | Rejected:
    """Returns name and password of a PLAIN token (RFC 4616): authorization id, name and password, separated by NUL."""
    try:
        parts = bytes(token).decode("utf-8").split("\0")
    except UnicodeDecodeError:
        return Rejected("", "the token is not UTF-8", _WRONG)
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

    def respond(self, token: bytes, done: Callable[[Outcome], None], is_wanted: Callable[[], bool]) -> None:
        if not self._exchange.is_started:
            done(self._outcome(token))
            return
        user = self._exchange.user
        outcome: Outcome = Rejected(user, "unknown user or wrong password, or too many failed logins before")

        def verify() -> bool:
            nonlocal outcome
            outcome = self._outcome(token)
            return isinstance(outcome, LoggedIn)

        # In the queue of all passwords, though it takes no time: guesses are delayed there.
        self._authenticator.check_proof(user, token, self._address, verify, lambda _: done(outcome), is_wanted)

    def _outcome(self, token: bytes) -> Outcome:
        exchange = self._exchange
        try:
            if not exchange.is_started:
                reply = exchange.start(token)
                if exchange.acts_for not in ("", exchange.user):
                    return Rejected(exchange.user, "the authorization id is that of another user", _OTHER_ID)
                if exchange.is_by_token:
                    return Rejected(exchange.user, "delegation tokens are not supported")
                return Continued(reply)
            proof = exchange.finish(token)
        except BadScramMessage as error:
            return Rejected(exchange.user, str(error))
        except WrongProof:
            return Rejected(exchange.user, "unknown user or wrong password")
        if not self._authenticator.is_admitted(exchange.user, self._address):
            return Rejected(exchange.user, "this user may log in from the broker's machine only")
        return LoggedIn(exchange.user, proof)


class _OAuthBearer:
    """RFC 7628: a wrong token is answered with a reason, and fails after the client's reply to it."""

    def __init__(self, tokens: BearerTokens, authenticator: Authenticator, address: str) -> None:
        self._tokens = tokens
        self._authenticator = authenticator
        self._address = address
        self._failure: Rejected | None = None

    def respond(self, token: bytes, done: Callable[[Outcome], None], is_wanted: Callable[[], bool]) -> None:
        if self._failure is not None:
            done(self._failure)
            return
        read = read_bearer(token)
        if isinstance(read, Rejected):
            done(read)
            return
        acts_for, bearer_token = read
        self._tokens.check(bearer_token, lambda found: done(self._outcome(found, acts_for)))

    def _outcome(self, found: Bearer | BadToken, acts_for: str) -> Outcome:
        if isinstance(found, BadToken):
            self._failure = Rejected("", str(found))
            return Continued(b'{"status":"invalid_token"}')
        name = found.principal
        if acts_for not in ("", name):
            text = f"Authentication failed: Client requested an authorization id ({acts_for}) that is different from "
            text += f"the token's principal name ({name})"
            return Rejected(name, "the authorization id is that of another user", text)
        if not self._authenticator.is_admitted(name, self._address):
            return Rejected(name, "this user may log in from the broker's machine only")
        return LoggedIn(name, b"", found.expires_at_ms)


def read_bearer(token: bytes) -> tuple[str, str] | Rejected:
    """Returns authorization id and bearer token of the first message (RFC 7628): `n,a=id,^Aauth=Bearer token^A^A`."""
    try:
        header, *pairs = bytes(token).decode("utf-8").split("\x01")
    except UnicodeDecodeError:
        return Rejected("", "the message is not UTF-8")
    bound, _, acts_for = header.partition(",")
    if bound != "n" or not acts_for.endswith(",") or pairs[-2:] != ["", ""]:
        return Rejected("", "the message is not as in RFC 7628", "Invalid OAUTHBEARER client first message")
    found = dict(pair.partition("=")[::2] for pair in pairs[:-2])
    scheme, _, bearer_token = found.get("auth", "").partition(" ")
    if not bearer_token.strip() or scheme.lower() != "bearer":
        return Rejected("", "the message holds no bearer token")
    return acts_for[:-1].removeprefix("a="), bearer_token.strip()
