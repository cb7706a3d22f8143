"""Login of the source and the sink: user name and password, read from their options. No text or repr shows the
password."""

from __future__ import annotations

import os
from base64 import b64encode
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from pyspark_trimq.mistakes import Mistake

LOGIN_OPTIONS = ("user", "password", "passwordFile")
PASSWORD_VARIABLE = "TRIMQ_PASSWORD"


@dataclass(frozen=True)
class Login:
    user: str
    password: str = field(repr=False)

    def basic(self) -> str:
        """Returns the value of the HTTP header Authorization."""
        return f"Basic {b64encode(f'{self.user}:{self.password}'.encode()).decode()}"

    def plain(self) -> bytes:
        """Returns the token of SASL PLAIN."""
        return f"\0{self.user}\0{self.password}".encode()

    def client_settings(self) -> dict[str, str]:
        """Returns the settings for librdkafka."""
        return {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": self.user,
            "sasl.password": self.password,
        }


def read_login(option: Callable[[str], str | None]) -> Login | None:
    """Reads LOGIN_OPTIONS; `option` returns the value of an option. Returns None if no user is given. Raises Mistake
    for a user without a password or a password without a user."""
    user, password, file = (option(name) for name in LOGIN_OPTIONS)
    if not user:
        if password is not None or file is not None:
            raise Mistake("a password is given without a user: give the option user")
        return None
    if "\0" in user or ":" in user:
        raise Mistake(f"the option user is {user!r}: a user name must not contain a colon")
    return Login(user, _password(user, password, file))


def _password(user: str, given: str | None, file: str | None) -> str:
    if given is not None and file is not None:
        raise Mistake("give one of the options password and passwordFile, not both")
    if file is not None:
        try:
            return Path(file).read_text(encoding="utf-8").rstrip("\r\n")
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or "it is not valid UTF-8"
            raise Mistake(f"the password of {user!r} cannot be read from {file}: {reason}") from None
    found = given if given is not None else os.environ.get(PASSWORD_VARIABLE)
    if found is None:
        raise Mistake(
            f"the user {user!r} needs a password: give the option password or passwordFile, or set {PASSWORD_VARIABLE}"
        )
    return found


def refused(address: str, login: Login | None) -> Mistake:
    """Returns the error for a login that the broker refused."""
    if login is None:
        return Mistake(f"the broker at {address} requires a login: give the options user and password")
    return Mistake(f"the broker at {address} refused the user name {login.user!r} or its password")
