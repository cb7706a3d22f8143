"""`trimq firehose`: the message tracer of a running broker, as RabbitMQ's `trace_on` and `trace_off`."""

from __future__ import annotations

import argparse
from typing import Any

from trimq.cli.api import add_address_flag, api_path, connect
from trimq.cli.output import print_json, print_table


def declare(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    listing = actions.add_parser("list", help="virtual hosts in which it is on")
    listing.set_defaults(run=list_traced)
    listing.add_argument("--json", action="store_true", help="print JSON")
    starting = actions.add_parser("on", help="copy all messages of a virtual host to amq.rabbitmq.trace")
    starting.set_defaults(run=turn_on)
    stopping = actions.add_parser("off", help="copy no more messages")
    stopping.set_defaults(run=turn_off)
    for placed in (starting, stopping):
        placed.add_argument("--vhost", default="/", help="the virtual host (default: /)")
    for action in (listing, starting, stopping):
        add_address_flag(action)


def list_traced(arguments: argparse.Namespace) -> int:
    answer = connect(arguments.http).get("/api/firehose", dict[str, list[dict[str, Any]]])
    if arguments.json:
        print_json(answer)
    else:
        print_table(("vhost",), [(traced["vhost"],) for traced in answer["firehose"]])
    return 0


def turn_on(arguments: argparse.Namespace) -> int:
    connect(arguments.http).put(api_path("firehose", arguments.vhost), {})
    print(f"firehose is on in {arguments.vhost}")
    return 0


def turn_off(arguments: argparse.Namespace) -> int:
    connect(arguments.http).delete(api_path("firehose", arguments.vhost))
    print(f"firehose is off in {arguments.vhost}")
    return 0
