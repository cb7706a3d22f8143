"""`trimq producers`: producers of a running broker."""

from __future__ import annotations

import argparse
from typing import Any

from trimq.cli.api import add_address_flag, connect
from trimq.cli.output import duration, local_time, print_json, print_table


def declare(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    listing = actions.add_parser(
        "list", help="connected RocketMQ producers, and Kafka producers with a producer id that topics remember"
    )
    listing.set_defaults(run=list_producers)
    listing.add_argument("--json", action="store_true", help="print JSON")
    add_address_flag(listing)


def list_producers(arguments: argparse.Namespace) -> int:
    answer = connect(arguments.http).get("/api/producers", dict[str, list[dict[str, Any]]])
    if arguments.json:
        print_json(answer)
        return 0
    producers = answer["producers"]
    connected = [_connected(each) for each in producers if each["protocol"] == "rocketmq"]
    print_table(("rocketmq group", "client", "host", "language", "version", "last heartbeat"), connected)
    print()
    remembered = [_remembered(each) for each in producers if each["protocol"] == "kafka"]
    columns = ("kafka id", "epoch", "transactional id", "topic", "stream", "last message", "transaction since offset")
    print_table(columns, remembered)
    return 0


def _connected(producer: dict[str, Any]) -> list[object]:
    fields = ("group", "client_id", "host", "language", "version")
    return [*(producer[field] for field in fields), f"{duration(producer['heartbeat_age_ms'])} ago"]


def _remembered(producer: dict[str, Any]) -> list[object]:
    fields = ("producer_id", "epoch", "transactional_id", "topic", "stream")
    last_ms = producer["last_ms"]
    last = None if last_ms is None else local_time(last_ms)
    return [*(producer[field] for field in fields), last, producer["open_from"]]
