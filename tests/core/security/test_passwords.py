from __future__ import annotations

import pytest

from trimq.core.security.passwords import hash_password, matches, unknown_password

SALT = b"0123456789abcdef"
HASHED = hash_password("secret", SALT)


@pytest.mark.parametrize(("password", "expected"), [("secret", True), ("Secret", False), ("", False)])
def test_only_the_password_matches_its_hash(password: str, expected: bool) -> None:
    assert matches(password, HASHED) is expected


def test_the_salt_makes_equal_passwords_different() -> None:
    assert hash_password("secret", bytes(16)) != HASHED


def test_a_hash_names_its_parameters_so_that_they_may_rise_later() -> None:
    assert HASHED.startswith("scrypt$14$8$1$")
    # Computed by the scrypt of the standard library with cost 2, block size 1 and parallelism 2.
    assert matches("x", "scrypt$1$1$2$AAAA$yH4QAPb0ilsT87DR8QKXCw==")


def test_no_password_matches_the_hash_of_an_unknown_user() -> None:
    hashed = unknown_password(bytes)
    assert not matches("", hashed)
    assert hashed.split("$")[:4] == HASHED.split("$")[:4], "the hash of an unknown user costs less than a real one"


@pytest.mark.parametrize(
    "hashed",
    [
        "",
        "secret",
        "scrypt$14$8$1$AAAA",
        "scrypt$14$8$1$AAAA$",
        "scrypt$14$8$1$!$AAAA",
        "scrypt$x$8$1$AAAA$AAAA",
        "scrypt$-1$8$1$AAAA$AAAA",
        "scrypt$0$8$1$AAAA$AAAA",
        "scrypt$99$8$1$AAAA$AAAA",
        "scrypt$30$8$1$AAAA$AAAA",
        "scrypt$14$8$0$AAAA$AAAA",
        "plain$14$8$1$AAAA$AAAA",
    ],
)
def test_an_invalid_hash_matches_nothing(hashed: str) -> None:
    assert not matches("secret", hashed)
