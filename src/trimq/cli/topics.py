"""`trimq topics`: the topics of a running broker."""

from __future__ import annotations

import argparse

from trimq.cli.api import Topic, TopicDescription, Topics, TopicSettings, add_address_flag, connect, topic_path
from trimq.cli.output import print_json, print_table, with_unit
from trimq.errors import StartupError


def declare(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(metavar="ACTION", required=True)

    listing = actions.add_parser("list", help="all topics")
    listing.set_defaults(run=list_topics)

    describing = actions.add_parser("describe", help="one topic with its settings and the offsets of its streams")
    describing.set_defaults(run=describe_topic)
    for shown in (listing, describing):
        shown.add_argument("--json", action="store_true", help="print JSON")

    creating = actions.add_parser("create", help="create a topic")
    creating.set_defaults(run=create_topic)
    creating.add_argument("--streams", type=int, default=1, metavar="N", help="number of streams (default: 1)")
    creating.add_argument(
        "--home",
        choices=("partition-log", "commit-log"),
        default="partition-log",
        help="layout of the topic: partition-log for Kafka (default), commit-log for RocketMQ; the type of a RocketMQ "
        "topic is set by --setting message.type=NORMAL, FIFO, DELAY or TRANSACTION",
    )

    altering = actions.add_parser("alter", help="change settings of a topic; other settings stay as they are")
    altering.set_defaults(run=alter_topic)
    altering.add_argument(
        "--reset", action="append", default=[], metavar="NAME", help="reset a setting to the default of the broker"
    )
    for given in (creating, altering):
        given.add_argument(
            "--setting",
            action="append",
            default=[],
            metavar="NAME=VALUE",
            help="a setting of the topic, by our name (retention_ms) or Kafka's (retention.ms); may be repeated; "
            "trimq topics settings lists all",
        )

    settings = actions.add_parser("settings", help="all settings that a topic may have, with their defaults")
    settings.set_defaults(run=list_settings)
    settings.add_argument("--json", action="store_true", help="print JSON")

    deleting = actions.add_parser("delete", help="delete a topic with all its messages")
    deleting.set_defaults(run=delete_topic)
    for named in (describing, creating, altering, deleting):
        named.add_argument("name", metavar="NAME")
        named.add_argument("--namespace", default="", help="namespace of the topic (default: empty)")
    for action in (listing, describing, creating, altering, settings, deleting):
        add_address_flag(action)


def list_topics(arguments: argparse.Namespace) -> int:
    answer = connect(arguments.http).get("/api/topics", Topics)
    if arguments.json:
        print_json(answer)
    else:
        rows = [(topic.name, topic.namespace, topic.streams, topic.home, topic.id) for topic in answer.topics]
        print_table(("name", "namespace", "streams", "home", "id"), rows)
    return 0


def describe_topic(arguments: argparse.Namespace) -> int:
    path = topic_path(arguments.name, arguments.namespace)
    topic = connect(arguments.http).get(path, TopicDescription)
    if arguments.json:
        print_json(topic)
        return 0
    facts = [("name", topic.name), ("namespace", topic.namespace), ("id", topic.id), ("home", topic.home)]
    settings = [(name, with_unit(name, str(value))) for name, value in topic.settings.items()]
    print_table(("topic", "value"), [*facts, *settings])
    print()
    columns = ("stream", "start", "end", "durable_end", "readable_end", "bytes")
    rows = [[getattr(stream, column) for column in columns] for stream in topic.offsets]
    print_table(columns, rows)
    return 0


def create_topic(arguments: argparse.Namespace) -> int:
    body = {
        "name": arguments.name,
        "namespace": arguments.namespace,
        "streams": arguments.streams,
        "home": arguments.home,
        "settings": dict(_split_setting(setting) for setting in arguments.setting),
    }
    topic = connect(arguments.http).post("/api/topics", body, Topic)
    print(f"created {topic.name} with {topic.streams} {'stream' if topic.streams == 1 else 'streams'}")
    return 0


def alter_topic(arguments: argparse.Namespace) -> int:
    settings: dict[str, str | None] = dict(_split_setting(setting) for setting in arguments.setting)
    settings.update(dict.fromkeys(arguments.reset))
    if not settings:
        raise StartupError("nothing to change: give --setting NAME=VALUE or --reset NAME")
    path = topic_path(arguments.name, arguments.namespace)
    topic = connect(arguments.http).patch(path, {"settings": settings}, Topic)
    rows = [(name, with_unit(name, str(value))) for name, value in topic.settings.items()]
    print_table(("setting of its own", "value"), rows)
    return 0


def list_settings(arguments: argparse.Namespace) -> int:
    answer = connect(arguments.http).get("/api/topic-settings", TopicSettings)
    if arguments.json:
        print_json(answer)
        return 0
    rows = [
        (each.name, each.kafka_name, with_unit(each.name, each.default) or "-", each.description)
        for each in answer.settings
    ]
    print_table(("name", "in Kafka", "default", "meaning"), rows)
    return 0


def delete_topic(arguments: argparse.Namespace) -> int:
    connect(arguments.http).delete(topic_path(arguments.name, arguments.namespace))
    print(f"deleted {arguments.name}")
    return 0


def _split_setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise StartupError(f"--setting: expected NAME=VALUE, got {text!r}")
    return name, value
