"""`trimq failures`: the ledger of failed messages of queues and groups of a running broker."""

from __future__ import annotations

import argparse
import base64
from typing import Any

import msgspec

from trimq.cli.api import add_address_flag, api_path, connect
from trimq.cli.output import local_time, print_json, print_table

_SHOWN = 40


class Failures(msgspec.Struct):
    failures: list[dict[str, Any]]
    next: int


def declare(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    listing = actions.add_parser("list", help="list the failed messages of a virtual host, oldest first")
    listing.set_defaults(run=list_failures)
    listing.add_argument("--from", dest="first", type=int, default=0, metavar="ID", help="start with this id")
    listing.add_argument(
        "--limit", type=int, default=100, metavar="N", help="maximum number of failures (default: 100)"
    )
    listing.add_argument("--json", action="store_true", help="print JSON")
    redriving = actions.add_parser("redrive", help="send failed messages to their queue or group again")
    redriving.set_defaults(run=redrive)
    redriving.add_argument("ids", metavar="ID", type=int, nargs="+")
    for action in (listing, redriving):
        action.add_argument("--vhost", default="/", help="the virtual host of the queues (default: /)")
        add_address_flag(action)


def list_failures(arguments: argparse.Namespace) -> int:
    query = {"vhost": arguments.vhost, "from": str(arguments.first), "limit": str(arguments.limit)}
    answer = connect(arguments.http).get(api_path("failures", **query), Failures)
    if arguments.json:
        print_json(answer)
        return 0
    columns = ("id", "queue", "group", "reason", "attempts", "time", "redriven", "bytes")
    rows = []
    for failure in answer.failures:
        body = base64.b64decode(failure["body"])[:_SHOWN].decode("utf-8", "replace")
        cells = failure | {"time": local_time(failure["time_ms"]), "redriven": "yes" if failure["redriven"] else "no"}
        rows.append([*(cells[column] for column in columns), body])
    print_table((*columns, "begins with"), rows)
    return 0


def redrive(arguments: argparse.Namespace) -> int:
    broker = connect(arguments.http)
    for id in arguments.ids:
        broker.send(api_path("failures", str(id), "redrive", vhost=arguments.vhost))
        print(f"sent {id} again")
    return 0
