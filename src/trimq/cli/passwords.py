"""Passwords that commands give to users: from a variable or typed, never from the command line."""

from __future__ import annotations

import os
import sys

from trimq.errors import StartupError

NEW_PASSWORD = "TRIMQ_NEW_PASSWORD"


def read_new_password(name: str) -> str:
    """Returns the password of the variable, or asks for it, twice, on a terminal."""
    found = os.environ.get(NEW_PASSWORD)
    if found:
        return found
    if not sys.stdin.isatty():
        raise StartupError(f"put the password of {name} into {NEW_PASSWORD}")
    from getpass import getpass

    typed = getpass(f"password of {name}: ")
    if not typed or typed != getpass("again: "):
        raise StartupError("the passwords are empty or differ")
    return typed
