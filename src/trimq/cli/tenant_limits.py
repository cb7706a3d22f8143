"""Flags for the limits of one user or virtual host, and their values as text. Knows no command."""

from __future__ import annotations

import argparse
from collections.abc import Mapping

from trimq.errors import StartupError

NO_LIMIT = "none"

_FLAGS = {
    "user": {"max-connections": "AMQP connections of the user", "max-channels": "channels of the user"},
    "vhost": {"max-connections": "AMQP connections to the virtual host", "max-queues": "queues of the virtual host"},
}


def add_limit_flags(parser: argparse.ArgumentParser, tenant: str) -> None:
    for name, what in _FLAGS[tenant].items():
        parser.add_argument(f"--{name}", metavar="N", help=f"most {what} at once; 0: none at all; none: no limit")


def read_limits(arguments: argparse.Namespace, tenant: str) -> dict[str, int | None]:
    """Returns the given limits by name, None for those to remove."""
    given = {name: getattr(arguments, name.replace("-", "_")) for name in _FLAGS[tenant]}
    found: dict[str, int | None] = {}
    for name, text in given.items():
        if text is not None:
            if not text.isascii() or not (text.isdigit() or text == NO_LIMIT):
                raise StartupError(f"--{name}: expected a number or {NO_LIMIT}, got {text!r}")
            found[name] = None if text == NO_LIMIT else int(text)
    if not found:
        raise StartupError(f"nothing to set: give {' or '.join(f'--{name}' for name in given)}")
    return found


def limits_text(limits: Mapping[str, int | None]) -> str:
    return " ".join(f"{name}={NO_LIMIT if value is None else value}" for name, value in limits.items())
