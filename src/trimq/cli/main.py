"""The command `trimq`: runs a subcommand and turns its errors into one sentence and an exit code. A subcommand is
imported only when used, so that no command loads another's libraries."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NoReturn

from trimq.cli.failure import CommandFailure
from trimq.cli.version import version
from trimq.errors import Damage, StartupError

COMMANDS = {
    "serve": "start the broker",
    "topics": "list, describe, create and delete topics of a running broker",
    "groups": "list, describe, create, move and delete consumer groups of a running broker",
    "producers": "list producers of RocketMQ and Kafka of a running broker",
    "queues": "list, describe, purge and delete AMQP queues of a running broker",
    "failures": "list failed messages of queues and groups, and send them again",
    "users": "list, set and delete users and their permissions, and define the first administrator",
    "acls": "list, add and delete access control entries of a running broker",
    "connections": "list open connections of a running broker, and close one",
    "vhosts": "list, create and delete virtual hosts of a running broker",
    "limits": "show and change limits of memory, disk and channels of a running broker",
    "firehose": "copy all messages of a virtual host of a running broker to amq.rabbitmq.trace",
    "policies": "list, set and delete policies for AMQP queues of a running broker",
    "definitions": "export and import users, vhosts, queues, exchanges, bindings and policies",
    "pipeline": "archive, restore, audit and more, on Spark",
    "storage": "verify, dump and measure the data folder of a stopped broker",
    "settings": "print every setting with its names, default and meaning",
}
# Options of most commands, which may stand before the command too.
_WITH_VALUE = ("--http", "--ca", "--cert", "--bootstrap")
_WITHOUT_VALUE = ("--json",)
_COMMAND_AND_ACTION = 2

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130


class Parser(argparse.ArgumentParser):
    """Parser that reports an error as one sentence, without printing the usage."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options, allow_abbrev=False)

    def error(self, message: str) -> NoReturn:
        raise StartupError(f"{message} (see {self.prog} --help)")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit code: 0 success, 1 failure, 2 wrong usage."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    try:
        return _run(words)
    except StartupError as mistake:
        return _fail(str(mistake), EXIT_USAGE)
    except (CommandFailure, Damage) as failure:
        return _fail(str(failure), EXIT_FAILED)
    except BrokenPipeError:
        # The reader of our output has ended (`trimq topics list | head`); the interpreter must not flush into the pipe.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_FAILED
    except OSError as error:
        return _fail(str(error.strerror or error) + (f": {error.filename}" if error.filename else ""), EXIT_FAILED)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED


def _run(words: list[str]) -> int:
    words = move_global_options(words)
    parser = _parser(words[0] if words else "")
    if not words:
        parser.print_help(sys.stderr)
        return EXIT_USAGE
    chosen, unknown = parser.parse_known_args(words)
    if unknown and not chosen.reports_unknown:
        parser.error(f"{unknown[0]} is not a known argument")
    exit_code: int = chosen.run(chosen, unknown) if chosen.reports_unknown else chosen.run(chosen)
    sys.stdout.flush()  # here, where a closed pipe is still caught
    return exit_code


def move_global_options(words: list[str]) -> list[str]:
    """Moves options that stand before the command, or between the command and its action, to the end, where the action
    reads them."""
    moved: list[str] = []
    kept: list[str] = []
    rest = list(words)
    while rest and len(kept) < _COMMAND_AND_ACTION:
        name = rest[0].partition("=")[0]
        if name in _WITH_VALUE or name in _WITHOUT_VALUE:
            count = 2 if rest[0] in _WITH_VALUE else 1
            moved += rest[:count]
            del rest[:count]
        else:
            kept.append(rest.pop(0))
    return [*kept, *rest, *moved]


def _parser(command: str) -> Parser:
    """Returns a parser with all commands, but only the chosen one with its flags."""
    parser = Parser(prog="trimq", description="One message broker for Kafka, RocketMQ and RabbitMQ clients.")
    parser.add_argument("--version", action=_ShowVersion, nargs=0, help="print the version and exit")
    parser.set_defaults(reports_unknown=False)
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for name, summary in COMMANDS.items():
        added = commands.add_parser(name, help=summary, description=summary.capitalize() + ".")
        if name == command:
            import_module(f"trimq.cli.{name}").declare(added)
    return parser


class _ShowVersion(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        print(f"trimq {version()}")
        parser.exit()


def _fail(sentence: str, exit_code: int) -> int:
    print(f"trimq: {sentence}", file=sys.stderr)
    return exit_code


if __name__ == "__main__":
    sys.exit(main())
