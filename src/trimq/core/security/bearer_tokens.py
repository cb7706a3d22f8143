"""Bearer tokens (JWT, RFC 7519) that an issuer has signed: checked against its public keys, a JWKS file. The file is
read again when a token names a key that it did not hold."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from trimq.clock import Clock
from trimq.errors import StartupError
from trimq.offload import Offload

log = logging.getLogger(__name__)

# Public-key algorithms only: with a key of the file, a client could sign by itself with the others.
ALGORITHMS = (
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512", "EdDSA", "Ed25519"),
)
TOKEN_BYTES = 16 * 1024

_LEEWAY_S = 30
_READ_AGAIN_MS = 10_000


class Expected(NamedTuple):
    """Requirements for a token. Empty texts are not checked."""

    issuer: str = ""
    audience: str = ""
    scope: str = ""
    """Scopes, separated by blanks, all of which the token must have."""
    principal_claim: str = "sub"


class Bearer(NamedTuple):
    """Whom a token belongs to, and until when it is valid (wall time)."""

    principal: str
    expires_at_ms: int


class BadToken(ValueError):
    """The text says what is wrong with the token, and holds no part of it."""


class _UnknownKey(BadToken):
    pass


class BearerTokens:
    def __init__(self, read_keys: Callable[[], bytes], expected: Expected, offload: Offload, clock: Clock) -> None:
        """Raises StartupError if the keys cannot be read."""
        self._read_keys = read_keys
        self._expected = expected
        self._offload = offload
        self._clock = clock
        self._keys = self._load()
        self._read_ms = clock.liveness.now_ms()

    def check(self, token: str, done: Callable[[Bearer | BadToken], None]) -> None:
        """Calls `done` now, or later on the loop."""
        try:
            done(self._verified(token))
        except _UnknownKey as error:
            if self._clock.liveness.now_ms() - self._read_ms < _READ_AGAIN_MS:
                done(error)
            else:
                self._check_with_new_keys(token, done)
        except BadToken as error:
            done(error)

    def _check_with_new_keys(self, token: str, done: Callable[[Bearer | BadToken], None]) -> None:
        self._read_ms = self._clock.liveness.now_ms()

        def loaded(result: object, error: BaseException | None) -> None:
            if error is None:
                self._keys = result
            else:
                log.error("keys of bearer tokens: not read again, the old ones are used (%s)", error)
            try:
                outcome: Bearer | BadToken = self._verified(token)
            except BadToken as bad:
                outcome = bad
            done(outcome)

        self._offload(self._load, loaded)

    def _load(self) -> Any:
        try:
            from joserfc.errors import JoseError
            from joserfc.jwk import KeySet
        except ModuleNotFoundError:
            raise StartupError('bearer tokens need joserfc: pip install "trimq[oauth]"') from None
        try:
            return KeySet.import_key_set(msgspec.json.decode(self._read_keys()))
        except (OSError, ValueError, LookupError, TypeError, AttributeError, JoseError) as error:
            raise StartupError(
                f"the file of bearer token keys is not a JWKS: {error or type(error).__name__}"
            ) from None

    def _verified(self, token: str) -> Bearer:
        from joserfc import jwt
        from joserfc.errors import InvalidKeyIdError, JoseError

        if len(token) > TOKEN_BYTES:
            raise BadToken(f"the token is longer than {TOKEN_BYTES} bytes")
        try:
            claims = jwt.decode(token, self._keys, algorithms=ALGORITHMS).claims
        except InvalidKeyIdError:
            raise _UnknownKey("the token is signed with an unknown key") from None
        except (JoseError, ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
            raise BadToken(f"the token is not signed by the issuer ({type(error).__name__})") from None
        self._check_claims(claims)
        principal = claims.get(self._expected.principal_claim)
        if not isinstance(principal, str) or not principal:
            raise BadToken(f"the token has no text in its claim {self._expected.principal_claim}")
        return Bearer(principal, int(claims["exp"] * 1000))

    def _check_claims(self, claims: dict[str, Any]) -> None:
        from joserfc.errors import JoseError
        from joserfc.jwt import JWTClaimsRegistry

        expected = self._expected
        options: dict[str, Any] = {"exp": {"essential": True}}
        if expected.issuer:
            options["iss"] = {"essential": True, "value": expected.issuer}
        if expected.audience:
            options["aud"] = {"essential": True, "value": expected.audience}
        registry = JWTClaimsRegistry(now=self._clock.message.now_ms() // 1000, leeway=_LEEWAY_S, **options)
        try:
            registry.validate(claims)
        except (JoseError, ValueError, TypeError) as error:
            claim = getattr(error, "claim", None)
            raise BadToken(f"the token's claim {claim} is missing or wrong ({type(error).__name__})") from None
        missing = set(expected.scope.split()) - _scopes(claims)
        if missing:
            raise BadToken(f"the token lacks the scope {' '.join(sorted(missing))}")


def _scopes(claims: dict[str, Any]) -> set[str]:
    """Scopes are a text with blanks (RFC 8693) or a list; some issuers call them `scp`."""
    found = claims.get("scope", claims.get("scp"))
    if isinstance(found, str):
        return set(found.split())
    return {each for each in found if isinstance(each, str)} if isinstance(found, list) else set()
