"""`trimq connections`: open connections of a running broker."""

from __future__ import annotations

import argparse
from typing import Any

from trimq.cli.api import add_address_flag, api_path, connect
from trimq.cli.output import local_time, print_json, print_table


def declare(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    listing = actions.add_parser("list", help="all open connections")
    listing.set_defaults(run=list_connections)
    listing.add_argument("--json", action="store_true", help="print JSON")
    closing = actions.add_parser("close", help="close one connection")
    closing.set_defaults(run=close_connection)
    closing.add_argument("name", metavar="NAME", help="name of the connection, as `list` prints it")
    closing.add_argument("--reason", default="", help="reason that AMQP clients are told")
    for action in (listing, closing):
        add_address_flag(action)


def list_connections(arguments: argparse.Namespace) -> int:
    answer = connect(arguments.http).get("/api/connections", dict[str, list[dict[str, Any]]])
    if arguments.json:
        print_json(answer)
        return 0
    columns = ("name", "protocol", "user", "vhost", "client_id", "channels")
    rows = [
        [*("" if connection[column] is None else connection[column] for column in columns), _since(connection)]
        for connection in answer["connections"]
    ]
    print_table((*columns, "connected"), rows)
    return 0


def _since(connection: dict[str, Any]) -> str:
    return local_time(connection["connected_ms"])


def close_connection(arguments: argparse.Namespace) -> int:
    connect(arguments.http).delete(api_path("connections", arguments.name, reason=arguments.reason))
    print(f"closed {arguments.name}")
    return 0
