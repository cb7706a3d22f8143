"""`trimq settings`: prints every setting with its names, default and meaning. `docs/settings.md` is its markdown
output."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator

import msgspec

from trimq.cli.output import print_table
from trimq.config import Declaration, declarations

INTRODUCTION = """\
# Settings

Every setting has three names: a key in the TOML file that `trimq serve --config` reads, an environment variable and a
flag of `trimq serve`. A flag beats the environment, the environment beats the file. A variable that is set but empty
counts as not set. All mistakes are reported at once, before anything is opened.

A listener takes `HOST:PORT` (an IPv6 address in brackets: `[::1]:9092`) or `off`; port 0 picks a free one.
`trimq settings --format toml` prints a file with every default. This page is `trimq settings --format markdown`.
"""


def declare(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(run=run)
    parser.add_argument("--format", choices=("table", "markdown", "toml"), default="table")


def run(arguments: argparse.Namespace) -> int:
    if arguments.format == "table":
        rows = [(each.key, each.shown_default, each.form, each.help) for each in declarations()]
        print_table(("setting", "default", "values", "meaning"), rows)
    else:
        lines = markdown_lines if arguments.format == "markdown" else toml_lines
        for line in lines(declarations()):
            print(line)
    return 0


def markdown_lines(settings: Iterable[Declaration]) -> Iterator[str]:
    """Yields the lines of the documentation page."""
    yield from INTRODUCTION.splitlines()
    section = None
    for setting in settings:
        if setting.section != section:
            section = setting.section
            yield ""
            yield f"## {section or 'General'}"
            yield ""
            yield "| key | variable | flag | default | values | meaning |"
            yield "|---|---|---|---|---|---|"
        cells = (
            f"`{setting.key}`",
            f"`{setting.variable}`",
            f"`{setting.flag}`",
            setting.shown_default,
            setting.form,
            setting.help,
        )
        yield "| " + " | ".join(cells) + " |"


def toml_lines(settings: Iterable[Declaration]) -> Iterator[str]:
    """Yields the lines of a TOML file with every default; settings without a default are comments."""
    section = ""
    for setting in settings:
        if setting.section != section:
            section = setting.section
            yield f"[{section}]"
        yield f"# {setting.help} ({setting.form})"
        if setting.written_default is None:
            yield f"# {setting.field} ="
        else:
            yield f"{setting.field} = {msgspec.json.encode(setting.written_default).decode()}"
        yield ""
