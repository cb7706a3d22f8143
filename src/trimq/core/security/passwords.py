"""Salted password hashes, checked in constant time. Pure, and slow on purpose: callers on the event loop run `matches`
in a thread."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Callable

# scrypt: about 50 ms and 16 MiB per guess. The hash contains its parameters, so that they can be raised later.
_LOG2_COST = 14
_BLOCK_SIZE = 8
_PARALLEL = 1
_MEMORY_LIMIT = 1 << 26
SALT_BYTES = 16
_HASH_BYTES = 32


def hash_password(password: str, salt: bytes) -> str:
    """Returns `scrypt$<log2 of the cost>$<block size>$<parallel>$<salt>$<hash>`, the last two in base64."""
    digest = _digest(password, salt, _LOG2_COST, _BLOCK_SIZE, _PARALLEL, _HASH_BYTES)
    return _write(salt, digest)


def _write(salt: bytes, digest: bytes) -> str:
    encoded = (base64.b64encode(part).decode("ascii") for part in (salt, digest))
    return "$".join(("scrypt", str(_LOG2_COST), str(_BLOCK_SIZE), str(_PARALLEL), *encoded))


def unknown_password(random_bytes: Callable[[int], bytes]) -> str:
    """Returns a hash of no known password. Comparing with it takes as long as with a real one."""
    return _write(random_bytes(SALT_BYTES), random_bytes(_HASH_BYTES))


def matches(password: str, hashed: str) -> bool:
    """Returns whether `hashed` was made from this password. A hash that cannot be parsed matches nothing."""
    try:
        scheme, log2_cost, block_size, parallel, salt, digest = hashed.split("$")
        expected = base64.b64decode(digest, validate=True)
        if scheme != "scrypt":
            return False
        costs = int(log2_cost), int(block_size), int(parallel)
        found = _digest(password, base64.b64decode(salt, validate=True), *costs, len(expected))
    except (ValueError, TypeError, OverflowError):  # hashlib raises any of these for invalid parameters
        return False
    return hmac.compare_digest(found, expected)


def _digest(password: str, salt: bytes, log2_cost: int, block_size: int, parallel: int, length: int) -> bytes:
    return hashlib.scrypt(
        password.encode("utf-8", "surrogatepass"),
        salt=salt,
        n=1 << log2_cost,
        r=block_size,
        p=parallel,
        maxmem=_MEMORY_LIMIT,
        dklen=length,
    )
