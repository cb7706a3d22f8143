"""`trimq groups`: the consumer groups of a running broker."""

from __future__ import annotations

import argparse
from datetime import datetime
from typing import Any

import msgspec

from trimq.cli.api import (
    GroupDescription,
    Groups,
    StreamRange,
    StreamRanges,
    add_address_flag,
    api_path,
    connect,
    group_path,
)
from trimq.cli.failure import CommandFailure
from trimq.cli.output import duration, local_time, print_json, print_table
from trimq.errors import StartupError

_STOPPED = "stopped"  # note of the offsets of a Spark query that has ended


def declare(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    listing = actions.add_parser("list", help="all groups")
    listing.set_defaults(run=list_groups)
    describing = actions.add_parser("describe", help="one group with its members and committed offsets")
    describing.set_defaults(run=describe_group)
    describing.add_argument("name", metavar="NAME")
    describing.add_argument(
        "--protocol",
        metavar="PROTOCOL",
        default="",
        help="rocketmq: the RocketMQ group, if a Kafka group has the same name",
    )
    creating = actions.add_parser("create", help="create a RocketMQ group; gRPC clients need it before they connect")
    creating.set_defaults(run=create_group)
    creating.add_argument("name", metavar="NAME")
    creating.add_argument("--orderly", action="store_true", help="members consume in order")
    creating.add_argument(
        "--retries", type=int, default=16, metavar="N", help="maximum number of retries of a message (default: 16)"
    )
    moving = actions.add_parser("move", help="set the committed offsets of a group without members")
    moving.set_defaults(run=move_group)
    moving.add_argument("name", metavar="NAME")
    moving.add_argument("topic", metavar="TOPIC")
    moving.add_argument(
        "--stream", type=int, action="append", metavar="N", help="only this stream; may be repeated (default: all)"
    )
    moving.add_argument(
        "--to",
        required=True,
        metavar="PLACE",
        help="earliest, latest, an offset, or a local time such as 2026-01-31T08:00:00 (the first message that is not "
        "older)",
    )
    deleting = actions.add_parser("delete", help="delete a group without members, with its committed offsets")
    deleting.set_defaults(run=delete_group)
    deleting.add_argument("name", metavar="NAME")
    for action in (moving, deleting):
        action.add_argument("--protocol", metavar="PROTOCOL", default="", help="rocketmq: as for describe")
    for action in (listing, describing):
        action.add_argument("--json", action="store_true", help="print JSON")
    for action in (listing, describing, creating, moving, deleting):
        add_address_flag(action)


def move_group(arguments: argparse.Namespace) -> int:
    time_ms = _time_ms(arguments.to)
    api = connect(arguments.http)
    group = api.get(group_path(arguments.name, arguments.protocol), GroupDescription)
    time = "" if time_ms is None else str(time_ms)
    streams = api.get(api_path("streams", arguments.topic, time=time), StreamRanges).streams
    wanted = arguments.stream or [each.stream for each in streams]
    unknown = sorted(set(wanted) - {each.stream for each in streams})
    if unknown:
        raise CommandFailure(f"{arguments.topic} has no stream {unknown[0]}")
    before = {at.stream: at.offset for at in group.cursors if at.topic == arguments.topic}
    moved = [(each, _place(arguments.to, each)) for each in streams if each.stream in wanted]
    cursors = [{"topic": arguments.topic, "stream": each.stream, "offset": offset} for each, offset in moved]
    protocol = group.protocol if group.protocol == "rocketmq" else ""
    api.put(api_path("groups", arguments.name, "cursors", protocol=protocol), {"cursors": cursors})
    rows = [(arguments.topic, each.stream, before.get(each.stream), offset) for each, offset in moved]
    print_table(("topic", "stream", "from", "to"), rows)
    return 0


def _time_ms(text: str) -> int | None:
    """Returns the time that `--to` names in milliseconds since 1970, or None if it names none."""
    if text in ("earliest", "latest") or (text.isascii() and text.isdecimal()):
        return None
    try:
        return round(datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError):
        raise StartupError(
            f"--to: expected earliest, latest, an offset or a time such as 2026-01-31T08:00:00, got {text!r}"
        ) from None


def _place(text: str, stream: StreamRange) -> int:
    if text in ("earliest", "latest"):
        return stream.start if text == "earliest" else stream.end
    if stream.at_time is not None:
        return stream.at_time
    if not stream.start <= int(text) <= stream.end:
        raise CommandFailure(f"stream {stream.stream} has offsets {stream.start} to {stream.end}, not {text}")
    return int(text)


def delete_group(arguments: argparse.Namespace) -> int:
    connect(arguments.http).delete(group_path(arguments.name, arguments.protocol))
    print(f"deleted {arguments.name}")
    return 0


def create_group(arguments: argparse.Namespace) -> int:
    body = {"name": arguments.name, "orderly": arguments.orderly, "retries": arguments.retries}
    connect(arguments.http).post("/api/groups", body, Any)
    print(f"created {arguments.name}")
    return 0


def list_groups(arguments: argparse.Namespace) -> int:
    answer = connect(arguments.http).get("/api/groups", Groups)
    if arguments.json:
        print_json(answer)
        return 0
    rows = []
    for group in answer.groups:
        members = group.members if isinstance(group.members, int) else len(group.members)
        rows.append((group.name, group.protocol, group.state, members))
    print_table(("name", "protocol", "state", "members"), rows)
    return 0


def describe_group(arguments: argparse.Namespace) -> int:
    group = connect(arguments.http).get(group_path(arguments.name, arguments.protocol), GroupDescription)
    if arguments.json:
        print_json(group)
        return 0
    members = [("member", _member(member)) for member in group.members]
    subscriptions = [] if isinstance(group.subscriptions, msgspec.UnsetType) else group.subscriptions
    wanted = [("subscribes to", f"{each.topic} {each.expression}") for each in subscriptions]
    facts = [("name", group.name), ("protocol", group.protocol), ("state", group.state), *_seen(group)]
    facts += _rebalances(group)
    print_table(("group", "value"), [*facts, *wanted, *members])
    print()
    listed = sorted(group.cursors, key=lambda at: (at.topic, at.stream))
    rows = [(at.topic, at.stream, at.offset, at.end, at.lag) for at in listed]
    print_table(("topic", "stream", "offset", "end", "lag"), rows)
    return 0


def _seen(group: GroupDescription) -> list[tuple[str, str]]:
    """Returns when the group committed last, and whether it belonged to a reader that has stopped."""
    if not isinstance(group.last_commit_ms, int):
        return []
    is_stopped = any(at.note == _STOPPED for at in group.cursors)
    return [("last seen", local_time(group.last_commit_ms) + (", stopped" if is_stopped else ""))]


def _rebalances(group: GroupDescription) -> list[tuple[str, str]]:
    """Returns how often and how long the consumers of the group had to wait for an assignment."""
    found = group.rebalances
    if isinstance(found, msgspec.UnsetType):
        return []
    rows = [("rebalances", f"{found.completed} since the start of the broker, {duration(found.total_ms)} in all")]
    if found.completed:
        meanwhile = f"moved {found.last_moved} streams, {found.last_arrived} messages arrived meanwhile"
        rows.append(("last rebalance", f"took {duration(found.last_ms)}, {meanwhile}"))
    if found.running_ms is not None:
        rows.append(("rebalancing", f"for {duration(found.running_ms)}"))
    return rows


def _member(member: Any) -> str:
    if isinstance(member, str):
        return member
    if "differs" not in member:
        return msgspec.json.encode(member).decode()
    shown = " ".join(str(member.get(name, "")) for name in ("client_id", "host", "language", "version"))
    if not member["differs"]:
        return shown
    said = ", ".join(f"{each['topic']} {each['expression']}" for each in member["subscriptions"])
    return f"{shown}, differs from its group, subscribes to: {said or 'nothing'}"
