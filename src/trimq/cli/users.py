"""`trimq users`: users of a running broker and their permissions, and the first administrator of a stopped one."""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any

from trimq.cli.api import add_address_flag, api_path, connect
from trimq.cli.folder import add_folder_flag
from trimq.cli.output import print_json, print_table
from trimq.cli.passwords import NEW_PASSWORD, read_new_password
from trimq.cli.tenant_limits import add_limit_flags, limits_text, read_limits
from trimq.errors import StartupError

NEW_SECRET = "TRIMQ_NEW_ROCKETMQ_SECRET"


def declare(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Once a user exists, every client must log in; this command logs in with TRIMQ_USER and TRIMQ_PASSWORD."
    )
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    listing = actions.add_parser("list", help="all users and their permissions")
    listing.set_defaults(run=list_users)
    listing.add_argument("--json", action="store_true", help="print JSON")
    setting = actions.add_parser(
        "set",
        help=f"create or change a user; the password is read from {NEW_PASSWORD}, the secret key of its RocketMQ "
        f"clients from {NEW_SECRET} (empty: remove it)",
    )
    setting.set_defaults(run=set_user)
    setting.add_argument("--administrator", choices=("yes", "no"), help="whether the user has all rights")
    setting.add_argument(
        "--tags",
        metavar="TAGS",
        help="tags, separated by commas, instead of the present ones; administrator: all rights, impersonator: may "
        "publish in the name of others, all others are labels",
    )
    bootstrapping = actions.add_parser(
        "bootstrap",
        help="define an administrator in the data folder of a stopped broker: the first one, or one who lost the "
        f"password, which is read from {NEW_PASSWORD} or asked for",
    )
    bootstrapping.set_defaults(run=bootstrap)
    bootstrapping.add_argument("name", metavar="NAME")
    add_folder_flag(bootstrapping)
    deleting = actions.add_parser("delete", help="delete a user with all permissions and close its connections")
    deleting.set_defaults(run=delete_user)
    granting = actions.add_parser("grant", help="set the permissions of a user in a virtual host, by patterns of names")
    granting.set_defaults(run=grant)
    for kind in ("configure", "write", "read"):
        granting.add_argument(f"--{kind}", default="", metavar="PATTERN", help="regular expression; empty: no access")
    revoking = actions.add_parser("revoke", help="remove the permissions of a user in a virtual host")
    revoking.set_defaults(run=revoke)
    granting_topic = actions.add_parser(
        "grant-topic", help="restrict a user to routing keys of a topic exchange, by patterns"
    )
    granting_topic.set_defaults(run=grant_topic)
    for kind in ("write", "read"):
        granting_topic.add_argument(
            f"--{kind}",
            default="",
            metavar="PATTERN",
            help="regular expression, in which {username} and {vhost} stand for these names; empty: the empty key only",
        )
    revoking_topic = actions.add_parser("revoke-topic", help="remove the restriction to routing keys")
    revoking_topic.set_defaults(run=revoke_topic)
    revoking_topic.add_argument("--exchange", metavar="EXCHANGE", help="of this exchange only (default: of all)")
    limiting = actions.add_parser("limit", help="limit the AMQP connections and channels of a user")
    limiting.set_defaults(run=limit)
    add_limit_flags(limiting, "user")
    for placed in (granting, revoking, granting_topic, revoking_topic):
        placed.add_argument("--vhost", default="/", help="the virtual host (default: /)")
    for named in (setting, deleting, granting, revoking, granting_topic, revoking_topic, limiting):
        named.add_argument("name", metavar="NAME")
    granting_topic.add_argument("exchange", metavar="EXCHANGE")
    for action in (listing, setting, deleting, granting, revoking, granting_topic, revoking_topic, limiting):
        add_address_flag(action)


def list_users(arguments: argparse.Namespace) -> int:
    broker = connect(arguments.http)
    users = broker.get("/api/users", dict[str, list[dict[str, Any]]])
    permissions = broker.get("/api/permissions", dict[str, list[dict[str, Any]]])
    topics = broker.get("/api/topic-permissions", dict[str, list[dict[str, Any]]])
    limits = broker.get("/api/user-limits", dict[str, list[dict[str, Any]]])
    if arguments.json:
        print_json({**users, **permissions, **topics, **limits})
        return 0
    limits_of = {row["user"]: row["limits"] for row in limits["limits"]}
    rows = [
        (
            user["name"],
            " ".join(user["tags"]),
            _yes(user["rocketmq_secret"]),
            limits_text(limits_of.get(user["name"], {})),
        )
        for user in users["users"]
    ]
    print_table(("user", "tags", "RocketMQ secret", "limits"), rows)
    print()
    columns = ("user", "vhost", "configure", "write", "read")
    print_table(columns, [[right[column] for column in columns] for right in permissions["permissions"]])
    if topics["topic_permissions"]:
        print()
        columns = ("user", "vhost", "exchange", "write", "read")
        print_table(columns, [[right[column] for column in columns] for right in topics["topic_permissions"]])
    return 0


def _yes(is_so: bool) -> str:
    return "yes" if is_so else "no"


def set_user(arguments: argparse.Namespace) -> int:
    body: dict[str, object] = {}
    password = os.environ.get(NEW_PASSWORD)
    if password is not None:
        body["password"] = password
    secret = os.environ.get(NEW_SECRET)
    if secret is not None:
        body["rocketmq_secret"] = secret
    if arguments.administrator is not None:
        body["administrator"] = arguments.administrator == "yes"
    if arguments.tags is not None:
        body["tags"] = [tag for tag in arguments.tags.split(",") if tag]
    if not body:
        places = f"the password into {NEW_PASSWORD}, or the secret key of RocketMQ clients into {NEW_SECRET}"
        raise StartupError(f"nothing to set: put {places}, or give --administrator or --tags")
    broker = connect(arguments.http)
    answer = broker.put(api_path("users", arguments.name), body)
    print(f"set {arguments.name}")
    if answer:
        print(f"{broker.decode(answer, dict[str, str])['message']} (trimq users delete guest)", file=sys.stderr)
    if "TRIMQ_USER" not in os.environ:
        print("set TRIMQ_USER and TRIMQ_PASSWORD for this command", file=sys.stderr)
    return 0


def bootstrap(arguments: argparse.Namespace) -> int:
    from trimq.server.offline.administrators import define_administrator

    password = read_new_password(arguments.name)
    is_new = define_administrator(arguments.data_dir, arguments.name, password)
    what = "defined administrator" if is_new else "set the password of administrator"
    print(f"{what} {arguments.name} in {arguments.data_dir}")
    return 0


def delete_user(arguments: argparse.Namespace) -> int:
    connect(arguments.http).delete(api_path("users", arguments.name))
    print(f"deleted {arguments.name}")
    return 0


def grant(arguments: argparse.Namespace) -> int:
    body = {"configure": arguments.configure, "write": arguments.write, "read": arguments.read}
    connect(arguments.http).put(api_path("permissions", arguments.name, vhost=arguments.vhost), body)
    print(f"granted {arguments.name} rights in {arguments.vhost}")
    return 0


def revoke(arguments: argparse.Namespace) -> int:
    connect(arguments.http).delete(api_path("permissions", arguments.name, vhost=arguments.vhost))
    print(f"revoked all rights of {arguments.name} in {arguments.vhost}")
    return 0


def grant_topic(arguments: argparse.Namespace) -> int:
    body = {"exchange": arguments.exchange, "write": arguments.write, "read": arguments.read}
    connect(arguments.http).put(api_path("topic-permissions", arguments.name, vhost=arguments.vhost), body)
    print(f"restricted {arguments.name} to these routing keys of {arguments.exchange} in {arguments.vhost}")
    return 0


def revoke_topic(arguments: argparse.Namespace) -> int:
    exchange = arguments.exchange or ""
    path = api_path("topic-permissions", arguments.name, vhost=arguments.vhost, exchange=exchange)
    connect(arguments.http).delete(path)
    print(f"removed the restriction of {arguments.name} to routing keys of {exchange or 'all exchanges'}")
    return 0


def limit(arguments: argparse.Namespace) -> int:
    changes = read_limits(arguments, "user")
    after = connect(arguments.http).patch(api_path("user-limits", arguments.name), changes, dict[str, int])
    print(f"limits of {arguments.name}: {limits_text(after) or 'none'}")
    return 0
