"""`trimq acls`: access control entries of a running broker, which allow or deny actions on topics, groups and so on."""

from __future__ import annotations

import argparse
from typing import Any

from trimq.cli.api import add_address_flag, api_path, connect
from trimq.cli.output import print_json, print_table

_FIELDS = ("user", "action", "resource", "name", "pattern", "permission", "host", "vhost")


def declare(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "An entry that denies beats those that allow; administrators may do everything. Kafka clients list and change "
        "the same entries (kafka-acls)."
    )
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    listing = actions.add_parser("list", help="all entries")
    listing.set_defaults(run=list_entries)
    listing.add_argument("--json", action="store_true", help="print JSON")
    allowing = actions.add_parser("allow", help="add an entry that allows an action")
    denying = actions.add_parser("deny", help="add an entry that denies an action")
    deleting = actions.add_parser("delete", help="delete an entry")
    allowing.set_defaults(run=add, permission="allow")
    denying.set_defaults(run=add, permission="deny")
    deleting.set_defaults(run=delete)
    deleting.add_argument("permission", choices=("allow", "deny"))
    for changing in (allowing, denying, deleting):
        changing.add_argument("user", metavar="USER", help="name of a user, or * for everybody")
        changing.add_argument("action", metavar="OPERATION", help="read, write, create, delete, describe, … or all")
        changing.add_argument("resource", help="topic, group, exchange, transactional-id or broker")
        changing.add_argument("name", metavar="NAME", nargs="?", default="", help="name, or * for all; none for broker")
        changing.add_argument("--prefix", action="store_true", help="apply to all names that start with NAME")
        changing.add_argument("--host", default="*", help="address or network of the clients (default: any)")
        changing.add_argument("--vhost", default="/", help="the virtual host (default: /)")
    for each in (listing, allowing, denying, deleting):
        add_address_flag(each)


def list_entries(arguments: argparse.Namespace) -> int:
    answer = connect(arguments.http).get(api_path("acls"), dict[str, list[dict[str, Any]]])
    if arguments.json:
        print_json(answer)
        return 0
    print_table(_FIELDS, [[entry[field] for field in _FIELDS] for entry in answer["acls"]])
    return 0


def add(arguments: argparse.Namespace) -> int:
    connect(arguments.http).put(_path(arguments), {})
    print(f"added: {_describe(arguments)}")
    return 0


def delete(arguments: argparse.Namespace) -> int:
    connect(arguments.http).delete(_path(arguments))
    print(f"deleted: {_describe(arguments)}")
    return 0


def _path(arguments: argparse.Namespace) -> str:
    pattern = "prefixed" if arguments.prefix else "literal"
    asked = {field: getattr(arguments, field) for field in _FIELDS if field != "pattern"}
    return api_path("acls", **asked, pattern=pattern)


def _describe(arguments: argparse.Namespace) -> str:
    name = f" {arguments.name}{'*' if arguments.prefix else ''}" if arguments.name else ""
    return f"{arguments.permission} {arguments.user} {arguments.action} {arguments.resource}{name}"
