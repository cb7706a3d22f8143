"""`trimq serve`: reads the settings from flags, environment and file, then runs the broker. Its flags are derived from
`config`. Must stay quick to import: the whole start has half a second."""

from __future__ import annotations

import argparse
import contextlib
import gc
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence

from trimq.cli.banner import compose_banner
from trimq.cli.passwords import NEW_PASSWORD
from trimq.clock import monotonic_seconds
from trimq.config import Security, Settings, declarations, load, suggest_flag
from trimq.errors import StartupError
from trimq.server.optional_packages import missing_listeners


def declare(parser: argparse.ArgumentParser) -> None:
    """Adds a flag for every setting."""
    parser.set_defaults(run=run, reports_unknown=True)
    groups = {"": parser.add_argument_group("general")}
    groups[""].add_argument(
        "--config", metavar="FILE", help="TOML file of settings; environment and flags override it."
    )
    for declaration in declarations():
        section = declaration.section
        if section not in groups:
            groups[section] = parser.add_argument_group(section)
        groups[section].add_argument(
            declaration.flag,
            dest=declaration.key,
            default=argparse.SUPPRESS,
            metavar=declaration.placeholder,
            help=f"{declaration.help} Default: {declaration.shown_default}".replace("%", "%%"),
        )


def run(arguments: argparse.Namespace, unknown: Sequence[str]) -> int:
    """Serves until SIGTERM or SIGINT. Returns the exit code of the broker."""
    started_seconds = monotonic_seconds()
    settings = read_settings(arguments, unknown, os.environ)
    gc.disable()  # objects created at start are permanent; the broker enables collection again once started

    from trimq.server.lifecycle import serve  # late import: errors in the settings are reported sooner

    def announce(addresses: Mapping[str, str], has_users: bool) -> None:
        opened_seconds = monotonic_seconds() - started_seconds
        is_colored = sys.stdout.isatty() and "NO_COLOR" not in os.environ
        missing = missing_listeners()
        with contextlib.suppress(OSError):  # a closed stdout is no reason to stop
            print(compose_banner(settings, addresses, opened_seconds, has_users, missing, is_colored), flush=True)

    try:
        return serve(settings, announce, _first_administrator(settings.security, os.environ))
    finally:
        gc.enable()


def _first_administrator(security: Security, environment: Mapping[str, str]) -> tuple[str, Callable[[], str]] | None:
    if security.administrator is None:
        return None

    def read_password() -> str:
        file_name = security.administrator_password_file
        if file_name is None:
            found = environment.get(NEW_PASSWORD, "")
        else:
            try:
                found = _read_text(file_name).partition("\n")[0].removesuffix("\r")
            except (OSError, UnicodeDecodeError) as error:
                raise StartupError(f"the password file {file_name!r} cannot be read: {error}") from None
        if not found:
            raise StartupError(
                f"security.administrator needs a password: put it into {NEW_PASSWORD}, or into the first line of "
                "security.administrator_password_file"
            )
        return found

    return security.administrator, read_password


def read_settings(arguments: argparse.Namespace, unknown: Sequence[str], environment: Mapping[str, str]) -> Settings:
    """Returns all settings, or raises one StartupError with all mistakes."""
    mistakes = list(_explain_unknown(unknown))
    keys = {declaration.key for declaration in declarations()}
    flags = {name: value for name, value in vars(arguments).items() if name in keys}
    file_name: str = arguments.config or ""
    file_text = ""
    try:
        file_text = _read_text(file_name) if arguments.config is not None else ""
    except OSError as error:
        mistakes.append(f"the settings file {file_name!r} cannot be read: {error.strerror}")
    except UnicodeDecodeError:
        mistakes.append(f"the settings file {file_name!r} is not UTF-8 text")
    missing = missing_listeners()
    return load(flags, environment, file_text, file_name=file_name, mistakes=mistakes, missing=missing)


def _read_text(file_name: str) -> str:
    with open(file_name, encoding="utf-8") as file:
        return file.read()


def _explain_unknown(words: Sequence[str]) -> Iterator[str]:
    """Yields an error for each unknown flag or word, except a word after an unknown flag, which is its value."""
    follows_flag = False
    for word in words:
        if word.startswith("-"):
            flag = word.partition("=")[0]
            yield f"{flag} is not a flag of trimq serve{suggest_flag(flag)}"
        elif not follows_flag:
            yield f"trimq serve does not accept the argument {word!r}"
        follows_flag = word.startswith("-") and "=" not in word
