"""`trimq policies`: policies for the AMQP queues and exchanges of a running broker whose names match a pattern."""

from __future__ import annotations

import argparse
from typing import Any

import msgspec

from trimq.cli.api import add_address_flag, api_path, connect
from trimq.cli.output import print_json, print_table
from trimq.errors import StartupError


def declare(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    listing = actions.add_parser("list", help="all policies of a virtual host")
    listing.set_defaults(run=list_policies)
    listing.add_argument("--json", action="store_true", help="print JSON")
    setting = actions.add_parser("set", help="create or change a policy")
    setting.set_defaults(run=set_policy)
    setting.add_argument("name", metavar="NAME")
    setting.add_argument("pattern", metavar="PATTERN", help="regular expression that is searched in names")
    setting.add_argument("definition", metavar="JSON", help="such as '{\"max-length\": 1000}'")
    setting.add_argument(
        "--priority",
        type=int,
        default=0,
        help="of several matching policies, the one with the highest priority applies",
    )
    setting.add_argument("--apply-to", default="all", metavar="KIND", help="queues, exchanges, streams and so on")
    deleting = actions.add_parser("delete", help="delete a policy")
    deleting.set_defaults(run=delete_policy)
    deleting.add_argument("name", metavar="NAME")
    for action in (listing, setting, deleting):
        action.add_argument("--vhost", default="/", help="the virtual host (default: /)")
        add_address_flag(action)


def list_policies(arguments: argparse.Namespace) -> int:
    answer = connect(arguments.http).get(api_path("policies", vhost=arguments.vhost), dict[str, list[dict[str, Any]]])
    if arguments.json:
        print_json(answer)
        return 0
    columns = ("name", "vhost", "pattern", "apply_to", "priority")
    rows = [
        [*(policy[column] for column in columns), msgspec.json.encode(policy["definition"]).decode()]
        for policy in answer["policies"]
    ]
    print_table((*columns, "definition"), rows)
    return 0


def set_policy(arguments: argparse.Namespace) -> int:
    try:
        definition = msgspec.json.decode(arguments.definition, type=dict[str, str | int | bool])
    except msgspec.DecodeError as error:
        raise StartupError(f"the definition is not a JSON object of strings, numbers and booleans: {error}") from None
    body = {
        "pattern": arguments.pattern,
        "definition": definition,
        "priority": arguments.priority,
        "apply_to": arguments.apply_to,
    }
    connect(arguments.http).put(api_path("policies", arguments.name, vhost=arguments.vhost), body)
    print(f"set {arguments.name}")
    return 0


def delete_policy(arguments: argparse.Namespace) -> int:
    connect(arguments.http).delete(api_path("policies", arguments.name, vhost=arguments.vhost))
    print(f"deleted {arguments.name}")
    return 0
