"""Server side of a SCRAM login (RFC 5802, RFC 7677): reads the two messages of the client and checks its proof against
stored keys. Pure: the caller passes the credential lookup and the random nonce."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Callable
from typing import NamedTuple

from trimq.core.security.scram_credentials import MECHANISMS, ScramCredential

_MESSAGE_BYTES = 8192


class BadScramMessage(ValueError):
    """A message that is not as the RFC defines it. The text holds nothing that the client sent."""


class WrongProof(ValueError):
    """The client does not know the password."""


class ClientFirst(NamedTuple):
    """First message of the client, `n,,n=alice,r=nonce`: header and bare message are part of what is signed."""

    header: str
    bare: str
    acts_for: str
    user: str
    nonce: str


class ClientFinal(NamedTuple):
    """Final message of the client, `c=biws,r=nonce,p=proof`."""

    without_proof: str
    channel: bytes
    nonce: str
    proof: bytes


class ScramExchange:
    """One login. `find` returns the credential of a user, for unknown users one that no password matches."""

    def __init__(self, mechanism: str, find: Callable[[str], ScramCredential], server_nonce: str) -> None:
        self._digest = MECHANISMS[mechanism]
        self._find = find
        self._server_nonce = server_nonce
        self._first: ClientFirst | None = None
        self._reply = ""
        self._credential: ScramCredential | None = None

    @property
    def user(self) -> str:
        """Name in the first message, unverified until `finish` returns; empty before."""
        return "" if self._first is None else self._first.user

    @property
    def acts_for(self) -> str:
        """Authorization id in the first message; empty if it has none."""
        return "" if self._first is None else self._first.acts_for

    @property
    def is_by_token(self) -> bool:
        """True if the client logs in with a delegation token of Kafka's instead of a password."""
        return self._first is not None and "tokenauth=true" in self._first.bare.split(",")[2:]

    @property
    def is_started(self) -> bool:
        return self._first is not None

    def start(self, token: bytes) -> bytes:
        """Returns the server's first message: nonce, salt and iterations."""
        first = self._first = read_client_first(token)
        credential = self._credential = self._find(first.user)
        nonce = first.nonce + self._server_nonce
        self._reply = f"r={nonce},s={credential.salt},i={credential.iterations}"
        return self._reply.encode("ascii")

    def finish(self, token: bytes) -> bytes:
        """Returns the server's final message, which proves that the server knows the keys. Raises WrongProof."""
        assert self._first is not None
        assert self._credential is not None
        final = read_client_final(token)
        if final.nonce != self._first.nonce + self._server_nonce:
            raise BadScramMessage("the nonce is not that of the first message")
        if final.channel != self._first.header.encode("utf-8"):
            raise BadScramMessage("the channel binding is not that of the first message")
        signed = ",".join((self._first.bare, self._reply, final.without_proof)).encode("utf-8")
        stored_key = base64.b64decode(self._credential.stored_key)
        signature = hmac.digest(stored_key, signed, self._digest)
        if len(final.proof) != len(signature):
            raise WrongProof
        client_key = bytes(a ^ b for a, b in zip(final.proof, signature, strict=True))
        if not hmac.compare_digest(hashlib.new(self._digest, client_key).digest(), stored_key):
            raise WrongProof
        proof = hmac.digest(base64.b64decode(self._credential.server_key), signed, self._digest)
        return b"v=" + base64.b64encode(proof)


def read_client_first(token: bytes) -> ClientFirst:
    """Raises BadScramMessage."""
    parts = _attributes(token)
    if len(parts) < 4 or parts[0] not in ("n", "y"):
        raise BadScramMessage("the message does not begin with a header without channel binding")
    acts_for = _name(_value(parts[1], "a")) if parts[1] else ""
    user, nonce = _name(_value(parts[2], "n")), _value(parts[3], "r")
    if not _is_printable(nonce):
        raise BadScramMessage("the nonce has characters other than printable ASCII")
    return ClientFirst(f"{parts[0]},{parts[1]},", ",".join(parts[2:]), acts_for, user, nonce)


def read_client_final(token: bytes) -> ClientFinal:
    """Raises BadScramMessage."""
    parts = _attributes(token)
    if len(parts) < 3:
        raise BadScramMessage("the final message has too few attributes")
    channel, nonce, proof = _base64(_value(parts[0], "c")), _value(parts[1], "r"), _base64(_value(parts[-1], "p"))
    return ClientFinal(",".join(parts[:-1]), channel, nonce, proof)


def _attributes(token: bytes) -> list[str]:
    if len(token) > _MESSAGE_BYTES:
        raise BadScramMessage(f"the message is longer than {_MESSAGE_BYTES} bytes")
    try:
        text = bytes(token).decode("utf-8")
    except UnicodeDecodeError:
        raise BadScramMessage("the message is not UTF-8") from None
    if "\0" in text:
        raise BadScramMessage("the message has a NUL character")
    return text.split(",")


def _value(part: str, name: str) -> str:
    found, equals, value = part.partition("=")
    if found != name or not equals or not value:
        raise BadScramMessage(f"attribute {name} is missing, empty or at another place")
    return value


def _name(escaped: str) -> str:
    """Decodes a `saslname`, in which `=2C` is a comma and `=3D` an equals sign."""
    plain = escaped.replace("=2C", ",").replace("=3D", "=")
    if escaped.count("=") != escaped.count("=2C") + escaped.count("=3D"):
        raise BadScramMessage("a name has an equals sign that is not escaped")
    return plain


def _is_printable(nonce: str) -> bool:
    return all("!" <= character <= "~" for character in nonce)


def _base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise BadScramMessage("a value is not base64") from None
