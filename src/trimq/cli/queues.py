"""`trimq queues`: the AMQP queues of a running broker."""

from __future__ import annotations

import argparse
from typing import Any

import msgspec

from trimq.cli.api import add_address_flag, api_path, connect
from trimq.cli.output import print_json, print_table, with_unit

_COLUMNS = ("name", "vhost", "type", "ready", "unacknowledged", "consumers")
_UNITS = {
    "x-message-ttl": "ms",
    "x-expires": "ms",
    "x-consumer-timeout": "ms",
    "x-max-length-bytes": "bytes",
    "x-stream-max-segment-size-bytes": "bytes",
}


def declare(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    listing = actions.add_parser("list", help="all queues of a virtual host")
    listing.set_defaults(run=list_queues)
    describing = actions.add_parser("describe", help="one queue, its arguments and its consumers")
    describing.set_defaults(run=describe_queue)
    purging = actions.add_parser("purge", help="delete all ready messages")
    purging.set_defaults(run=purge_queue)
    deleting = actions.add_parser("delete", help="delete a queue with all its messages")
    deleting.set_defaults(run=delete_queue)
    for shown in (listing, describing):
        shown.add_argument("--json", action="store_true", help="print JSON")
    for named in (describing, purging, deleting):
        named.add_argument("name", metavar="NAME")
    for action in (listing, describing, purging, deleting):
        action.add_argument("--vhost", default="/", help="the virtual host of the queue (default: /)")
        add_address_flag(action)


def list_queues(arguments: argparse.Namespace) -> int:
    answer = connect(arguments.http).get(api_path("queues", vhost=arguments.vhost), dict[str, list[dict[str, Any]]])
    if arguments.json:
        print_json(answer)
    else:
        print_table(_COLUMNS, [[queue[column] for column in _COLUMNS] for queue in answer["queues"]])
    return 0


def describe_queue(arguments: argparse.Namespace) -> int:
    queue = connect(arguments.http).get(api_path("queues", arguments.name, vhost=arguments.vhost), dict[str, Any])
    if arguments.json:
        print_json(queue)
        return 0
    details = queue.pop("consumer_details")
    given = queue.pop("arguments")
    arguments_given = [(name, with_unit(name, str(value), _UNITS.get(name, ""))) for name, value in given.items()]
    print_table(("queue", "value"), [*queue.items(), *arguments_given])
    print()
    columns = ("tag", "prefetch", "unacknowledged", "acknowledges", "active", "priority")
    print_table(columns, [[consumer[column] for column in columns] for consumer in details])
    return 0


def purge_queue(arguments: argparse.Namespace) -> int:
    path = api_path("queues", arguments.name, "messages", vhost=arguments.vhost)
    answer = msgspec.json.decode(connect(arguments.http).delete(path), type=dict[str, int])
    print(f"removed {answer['purged']} messages of {arguments.name}")
    return 0


def delete_queue(arguments: argparse.Namespace) -> int:
    connect(arguments.http).delete(api_path("queues", arguments.name, vhost=arguments.vhost))
    print(f"deleted {arguments.name}")
    return 0
