"""Secrets with which clients sign requests (RocketMQ's access keys). A signature is checked with the secret itself, so
they are stored encrypted, with a key from a file. They are never shown again."""

from __future__ import annotations

import base64
import binascii
import hashlib
import logging
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import msgspec

from trimq.core.metadata.catalogue import Catalogue, Definition
from trimq.errors import InvalidSetting
from trimq.storage.group_commit.passes import Ticket
from trimq.storage.io.files import Files
from trimq.storage.io.key_file import begin_make_key, read_key

log = logging.getLogger(__name__)

KEY_FILE = "secrets.key"
KEY_BYTES = 32
MAX_SECRET_BYTES = 256

_KIND = "signing_secret"
_NONCE_BYTES = 12
_MISSING = 'secrets need cryptography: pip install "trimq[tls]"'


class SigningSecret(msgspec.Struct, frozen=True):
    """`sealed`: nonce and ciphertext (AES-256-GCM, with the user's name as associated data) in base64."""

    user: str
    key_id: str
    sealed: str


class SecretKey:
    """Key that encrypts the secrets: a given one, or one in the data folder that is made when the first secret is
    stored."""

    def __init__(self, files: Files, given: bytes | None, random_bytes: Callable[[int], bytes]) -> None:
        self._files = files
        self._random_bytes = random_bytes
        self.key = read_key(files, KEY_FILE, KEY_BYTES) if given is None else given

    def make(self) -> Callable[[], None]:
        """Makes the key if there is none. Returns work to do off the event loop before anything is encrypted."""
        if self.key is not None:
            return lambda: None
        key = self._random_bytes(KEY_BYTES)
        sync = begin_make_key(self._files, KEY_FILE, key)
        self.key = key

        def finish() -> None:
            try:
                sync()
            except BaseException:
                self.key = None  # nothing is encrypted with it; the next secret makes another
                raise

        return finish


class SigningSecrets:
    def __init__(self, catalogue: Catalogue, key: SecretKey, random_bytes: Callable[[int], bytes]) -> None:
        self._catalogue = catalogue
        self._key = key
        self._random_bytes = random_bytes
        self._stored: dict[str, SigningSecret] = {}
        self._plain: dict[str, bytes] = {}
        self._cipher: Any = None
        self.revision = 0
        """Increases with every change."""
        for user, definition in catalogue.all(_KIND):
            self._changed(user, definition)
        catalogue.watch(_KIND, self._changed)

    def open(self) -> None:
        """Decrypts the stored secrets. Loads the library for it only if there are any."""
        for user in self._stored:
            self.secret_of(user)

    def users(self) -> list[str]:
        return list(self._stored)

    def secret_of(self, user: str) -> bytes | None:
        """Returns None if the user has no secret, or one that cannot be decrypted."""
        found = self._plain.get(user)
        if found is None and user in self._stored:
            found = self._decrypt(self._stored[user])
            if found is not None:
                self._plain[user] = found
        return found

    def begin_seal(self, user: str, secret: str) -> Callable[[], SigningSecret]:
        """Returns a callable to be called once, off the event loop, whose result is for `put`. Raises InvalidSetting if
        this is not a possible secret."""
        plain = secret.encode("utf-8", "surrogatepass")
        if not 0 < len(plain) <= MAX_SECRET_BYTES:
            raise InvalidSetting("secret", f"a secret of {len(plain)} bytes: 1 to {MAX_SECRET_BYTES} are allowed")
        if find_spec("cryptography") is None:  # it is loaded off the event loop
            raise InvalidSetting("secret", _MISSING)
        nonce, finish_key = self._random_bytes(_NONCE_BYTES), self._key.make()
        key = self._key.key
        assert key is not None

        def seal() -> SigningSecret:
            finish_key()
            sealed = nonce + _cipher_class()(key).encrypt(nonce, plain, user.encode("utf-8", "surrogatepass"))
            return SigningSecret(user, _key_id(key), base64.b64encode(sealed).decode("ascii"))

        return seal

    def put(self, secret: SigningSecret) -> Ticket:
        found = self._catalogue.get(_KIND, secret.user)
        version = None if found is None else found.version
        return self._catalogue.put(_KIND, secret.user, msgspec.to_builtins(secret), version)

    def delete(self, user: str) -> list[Ticket]:
        """Deletes the secret of a user; nothing if it has none."""
        found = self._catalogue.get(_KIND, user)
        return [] if found is None else [self._catalogue.delete(_KIND, user, found.version)]

    def _decrypt(self, stored: SigningSecret) -> bytes | None:
        key = self._key.key
        if key is None or _key_id(key) != stored.key_id:
            reason = "there is no key" if key is None else "it was encrypted with another key"
            log.error("secret of user %r: cannot be decrypted, set it again (%s)", stored.user, reason)
            return None
        try:
            if self._cipher is None:
                self._cipher = _cipher_class()(key)
            sealed = base64.b64decode(stored.sealed, validate=True)
            name = stored.user.encode("utf-8", "surrogatepass")
            plain: bytes = self._cipher.decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], name)
        except InvalidSetting as error:
            log.error("secret of user %r: cannot be decrypted (%s)", stored.user, error)
            return None
        except Exception as error:  # of the library: InvalidTag, ValueError
            log.error("secret of user %r: cannot be decrypted, set it again (%s)", stored.user, type(error).__name__)
            return None
        return plain

    def _changed(self, user: str, definition: Definition | None) -> None:
        self.revision += 1
        self._plain.pop(user, None)
        if definition is None:
            self._stored.pop(user, None)
        else:
            self._stored[user] = msgspec.convert(definition.value, SigningSecret)


def read_given_key(text: bytes) -> bytes:
    """Returns the key in a key file of the operator: 32 bytes in base64. Raises ValueError."""
    try:
        key = base64.b64decode(text.strip(), validate=True)
    except binascii.Error as error:
        raise ValueError(f"no base64: {error}") from None
    if len(key) != KEY_BYTES:
        raise ValueError(f"{len(key)} bytes, expected {KEY_BYTES} in base64: openssl rand -base64 {KEY_BYTES}")
    return key


def _key_id(key: bytes) -> str:
    return hashlib.sha256(b"trimq key id" + key).hexdigest()[:16]


def _cipher_class() -> Any:
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ModuleNotFoundError:
        raise InvalidSetting("secret", _MISSING) from None
    return AESGCM
