"""`trimq limits`: limits of a running broker, until its next start."""

from __future__ import annotations

import argparse

from trimq.cli.api import add_address_flag, connect
from trimq.cli.output import print_json, print_table, with_unit
from trimq.errors import StartupError

_HELP = {
    "memory_percent": "refuse writes while the broker uses more than this part of the memory; 0: refuse all",
    "low_water_bytes": "refuse writes while the disk has less free space than this",
    "channel_max": "channels of each AMQP connection that is opened from now on; 0: unlimited",
}


def declare(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    showing = actions.add_parser("show", help="the limits in effect")
    showing.set_defaults(run=show_limits)
    setting = actions.add_parser("set", help="change limits; the next start restores those of the settings")
    setting.set_defaults(run=set_limits)
    for name, summary in _HELP.items():
        setting.add_argument(f"--{name.replace('_', '-')}", type=int, metavar="N", help=summary)
    for action in (showing, setting):
        action.add_argument("--json", action="store_true", help="print JSON")
        add_address_flag(action)


def show_limits(arguments: argparse.Namespace) -> int:
    _print(connect(arguments.http).get("/api/limits", dict[str, int]), arguments.json)
    return 0


def set_limits(arguments: argparse.Namespace) -> int:
    body = {name: value for name in _HELP if (value := getattr(arguments, name)) is not None}
    if not body:
        raise StartupError(f"nothing to set: give --{', --'.join(name.replace('_', '-') for name in _HELP)}")
    _print(connect(arguments.http).patch("/api/limits", body, dict[str, int]), arguments.json)
    return 0


def _print(limits: dict[str, int], as_json: bool) -> None:
    if as_json:
        print_json(limits)
    else:
        print_table(("limit", "value"), [(name, with_unit(name, str(limits[name]))) for name in _HELP])
