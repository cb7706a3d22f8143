"""SCRAM credentials (RFC 5802): salted keys, never a password. Stored in the catalogue. `scram_exchange` checks proofs
against them."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Callable

import msgspec

from trimq.core.metadata.catalogue import Catalogue, Definition
from trimq.errors import InvalidSetting, UnknownUser
from trimq.storage.group_commit.passes import Ticket

_KIND = "credential"
MECHANISMS = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
MIN_ITERATIONS = 4096
MAX_ITERATIONS = 16_384
_SALT_BYTES = 16
_KEY_BYTES = 32


class ScramCredential(msgspec.Struct, frozen=True):
    """`stored_key` verifies that a client knows the password; `server_key` proves to the client that the broker knows
    it."""

    user: str
    mechanism: str
    iterations: int
    salt: str
    stored_key: str
    server_key: str


def derive_credential(
    user: str, mechanism: str, iterations: int, salt: bytes, salted_password: bytes
) -> ScramCredential:
    """Derives the keys as in RFC 5802, section 3. The result does not suffice to log in."""
    if not user:
        raise InvalidSetting("user", "the user name is empty")
    if mechanism not in MECHANISMS:
        raise InvalidSetting("mechanism", f"{mechanism} is not one of {', '.join(MECHANISMS)}")
    if not MIN_ITERATIONS <= iterations <= MAX_ITERATIONS:
        raise InvalidSetting("iterations", f"{iterations} is not between {MIN_ITERATIONS} and {MAX_ITERATIONS}")
    if not salt or not salted_password:
        raise InvalidSetting("salt", "neither the salt nor the salted password may be empty")
    digest = MECHANISMS[mechanism]
    client_key = hmac.digest(salted_password, b"Client Key", digest)
    stored_key = hashlib.new(digest, client_key).digest()
    server_key = hmac.digest(salted_password, b"Server Key", digest)
    return ScramCredential(user, mechanism, iterations, *map(_encode, (salt, stored_key, server_key)))


def credentials_of_password(user: str, password: str, salt: bytes) -> list[ScramCredential]:
    """Returns a credential for each mechanism. Takes 20 ms on purpose: callers on the event loop run it in a thread.
    The password is used as its UTF-8 bytes, as Kafka's clients do."""
    raw = password.encode("utf-8", "surrogatepass")
    return [
        derive_credential(user, mechanism, MAX_ITERATIONS, salt, hashlib.pbkdf2_hmac(digest, raw, salt, MAX_ITERATIONS))
        for mechanism, digest in MECHANISMS.items()
    ]


class ScramCredentials:
    def __init__(self, catalogue: Catalogue, random_bytes: Callable[[int], bytes]) -> None:
        self._catalogue = catalogue
        self._random_bytes = random_bytes
        self._unknown_key = random_bytes(_KEY_BYTES)
        self._by_user: dict[str, dict[str, ScramCredential]] = {}
        for key, definition in catalogue.all(_KIND):
            self._changed(key, definition)
        catalogue.watch(_KIND, self._changed)

    def users(self) -> list[str]:
        return list(self._by_user)

    def of(self, user: str) -> list[ScramCredential]:
        """Returns at most one credential per mechanism."""
        return list(self._by_user.get(user, {}).values())

    def find(self, user: str, mechanism: str) -> ScramCredential | None:
        return self._by_user.get(user, {}).get(mechanism)

    def unknown(self, user: str, mechanism: str) -> ScramCredential:
        """Returns a credential that no password matches, always with the same salt for the same user, so that a login
        does not reveal which users exist."""
        key = hmac.digest(self._unknown_key, msgspec.json.encode((user, mechanism)), hashlib.sha256)
        digest_bytes = hashlib.new(MECHANISMS[mechanism]).digest_size
        stored_key, server_key = self._random_bytes(digest_bytes), self._random_bytes(digest_bytes)
        salt = key[:_SALT_BYTES]
        return ScramCredential(user, mechanism, MAX_ITERATIONS, *map(_encode, (salt, stored_key, server_key)))

    def new_salt(self) -> bytes:
        return self._random_bytes(_SALT_BYTES)

    def put(self, credential: ScramCredential) -> Ticket:
        """Replaces the user's credential for this mechanism."""
        key = _key(credential.user, credential.mechanism)
        found = self._catalogue.get(_KIND, key)
        version = None if found is None else found.version
        return self._catalogue.put(_KIND, key, msgspec.to_builtins(credential), version)

    def delete(self, user: str, mechanism: str) -> Ticket:
        key = _key(user, mechanism)
        found = self._catalogue.get(_KIND, key)
        if found is None:
            raise UnknownUser(user)
        return self._catalogue.delete(_KIND, key, found.version)

    def delete_all(self, user: str) -> list[Ticket]:
        """Deletes the credentials of a user; none if it has none."""
        return [self.delete(user, credential.mechanism) for credential in self.of(user)]

    def _changed(self, key: str, definition: Definition | None) -> None:
        user, mechanism = msgspec.json.decode(key, type=tuple[str, str])
        if definition is not None:
            self._by_user.setdefault(user, {})[mechanism] = msgspec.convert(definition.value, ScramCredential)
            return
        credentials = self._by_user.get(user, {})
        credentials.pop(mechanism, None)
        if not credentials:
            self._by_user.pop(user, None)


def _key(user: str, mechanism: str) -> str:
    """JSON, because a user name may contain any character."""
    return msgspec.json.encode((user, mechanism)).decode("utf-8")


def _encode(part: bytes) -> str:
    return base64.b64encode(part).decode("ascii")
