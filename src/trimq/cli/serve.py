"""`trimq serve`: settings from flags, environment and file, then the broker. Its flags are the declarations of
`config`; nothing is listed twice. Must stay quick to import: the whole start has half a second."""

from __future__ import annotations

import argparse
import contextlib
import gc
import os
from collections.abc import Iterator, Mapping, Sequence

from trimq.cli.banner import compose_banner
from trimq.clock import monotonic_seconds
from trimq.config import Settings, declarations, load, suggest_flag
from trimq.server.optional_packages import missing_listeners


def declare(parser: argparse.ArgumentParser) -> None:
    """Add a flag for every setting."""
    parser.set_defaults(run=run, reports_unknown=True)
    groups = {"": parser.add_argument_group("general")}
    groups[""].add_argument("--config", metavar="FILE", help="A TOML file of settings; environment and flags beat it.")
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
    """Serve until told to stop. The exit code is the broker's."""
    started_seconds = monotonic_seconds()
    settings = read_settings(arguments, unknown, os.environ)
    gc.disable()  # what the start creates is there to stay; the broker collects again when it has started

    from trimq.server.lifecycle import serve  # after the settings: a mistake in them need not wait for the broker

    def announce(addresses: Mapping[str, str]) -> None:
        opened_seconds = monotonic_seconds() - started_seconds
        with contextlib.suppress(OSError):  # that nobody reads our output is no reason to stop serving
            print(compose_banner(settings, addresses, opened_seconds), flush=True)

    try:
        return serve(settings, announce)
    finally:
        gc.enable()


def read_settings(arguments: argparse.Namespace, unknown: Sequence[str], environment: Mapping[str, str]) -> Settings:
    """All settings, or one StartupError with everything that is wrong with them."""
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
    """A word after an unknown flag is its value, and needs no sentence of its own."""
    follows_flag = False
    for word in words:
        if word.startswith("-"):
            flag = word.partition("=")[0]
            yield f"{flag} is not a flag of trimq serve{suggest_flag(flag)}"
        elif not follows_flag:
            yield f"trimq serve does not understand the word {word!r}"
        follows_flag = word.startswith("-") and "=" not in word
