"""`trimq vhosts`: the virtual hosts of a running broker."""

from __future__ import annotations

import argparse
from typing import Any

from trimq.cli.api import add_address_flag, api_path, connect
from trimq.cli.output import print_json, print_table
from trimq.cli.tenant_limits import add_limit_flags, limits_text, read_limits


def declare(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    listing = actions.add_parser("list", help="all virtual hosts")
    listing.set_defaults(run=list_vhosts)
    listing.add_argument("--json", action="store_true", help="print JSON")
    creating = actions.add_parser("create", help="create a virtual host")
    creating.set_defaults(run=create_vhost)
    deleting = actions.add_parser("delete", help="delete a virtual host with all its queues and exchanges")
    deleting.set_defaults(run=delete_vhost)
    limiting = actions.add_parser("limit", help="limit the AMQP connections and queues of a virtual host")
    limiting.set_defaults(run=limit_vhost)
    add_limit_flags(limiting, "vhost")
    for named in (creating, deleting, limiting):
        named.add_argument("name", metavar="NAME")
    for action in (listing, creating, deleting, limiting):
        add_address_flag(action)


def list_vhosts(arguments: argparse.Namespace) -> int:
    answer = connect(arguments.http).get("/api/vhosts", dict[str, list[dict[str, Any]]])
    if arguments.json:
        print_json(answer)
    else:
        print_table(("name", "limits"), [(vhost["name"], limits_text(vhost["limits"])) for vhost in answer["vhosts"]])
    return 0


def create_vhost(arguments: argparse.Namespace) -> int:
    connect(arguments.http).put(api_path("vhosts", arguments.name), {})
    print(f"created {arguments.name}")
    return 0


def delete_vhost(arguments: argparse.Namespace) -> int:
    connect(arguments.http).delete(api_path("vhosts", arguments.name))
    print(f"deleted {arguments.name}")
    return 0


def limit_vhost(arguments: argparse.Namespace) -> int:
    changes = read_limits(arguments, "vhost")
    after = connect(arguments.http).patch(api_path("vhost-limits", arguments.name), changes, dict[str, int])
    print(f"limits of {arguments.name}: {limits_text(after) or 'none'}")
    return 0
