"""`trimq storage`: inspects the data folder of a stopped broker. Changes nothing in it."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from trimq.cli.folder import add_folder_flag
from trimq.cli.output import escape_unprintable, print_json, print_json_line, print_table, progress_bar

if TYPE_CHECKING:
    from trimq.server.offline.data_folder import Finding


def declare(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(metavar="ACTION", required=True)

    verifying = actions.add_parser("verify", help="check every stored byte; exit 1 if anything is damaged")
    verifying.set_defaults(run=verify)

    dumping = actions.add_parser("dump", help="print stored messages")
    dumping.set_defaults(run=dump)
    asked = dumping.add_mutually_exclusive_group(required=True)
    asked.add_argument("--topic", metavar="NAME")
    asked.add_argument("--queue", metavar="NAME", help="durable AMQP queue")
    dumping.add_argument("--vhost", default="/", metavar="NAME", help="virtual host of the queue (default: /)")
    dumping.add_argument("--stream", type=int, default=0, metavar="N", help="number of the stream (default: 0)")
    dumping.add_argument("--from-offset", type=int, default=0, metavar="N", help="first offset (default: 0)")
    dumping.add_argument(
        "--limit", type=int, default=None, metavar="N", help="maximum number of messages (default: all)"
    )

    measuring = actions.add_parser("stats", help="sizes and offsets of each stream and queue")
    measuring.set_defaults(run=stats)

    for action in (verifying, dumping, measuring):
        add_folder_flag(action)
        action.add_argument("--json", action="store_true", help="print JSON")


def verify(arguments: argparse.Namespace) -> int:
    from trimq.server.offline import data_folder

    with progress_bar("verifying") as progress:
        return print_findings(data_folder.verify(arguments.data_dir, progress), arguments.json)


def dump(arguments: argparse.Namespace) -> int:
    from trimq.server.offline import data_folder

    range_of = (arguments.from_offset, arguments.limit)
    if arguments.queue is not None:
        records = data_folder.dump_queue(arguments.data_dir, arguments.vhost, arguments.queue, *range_of)
    else:
        records = data_folder.dump(arguments.data_dir, arguments.topic, arguments.stream, *range_of)
    print_records(records, arguments.json)
    return 0


def stats(arguments: argparse.Namespace) -> int:
    from trimq.server.offline import data_folder

    streams, queues = data_folder.stats(arguments.data_dir), data_folder.queue_stats(arguments.data_dir)
    if arguments.json:
        print_stats([*streams, *queues], as_json=True)
        return 0
    print_stats(streams, as_json=False)
    if queues:
        print()
        print_stats(queues, as_json=False)
    return 0


def print_findings(findings: Iterable[Finding], as_json: bool) -> int:
    """Prints each finding at once, since a large folder takes a while. Returns the exit code: 1 if there are
    findings."""
    count = 0
    for finding in findings:
        count += 1
        if as_json:
            print_json_line(finding)
        else:
            where = escape_unprintable(f"{finding.file} at byte {finding.position}")
            print(f"{where}: {finding.problem}. {finding.remedy}", flush=True)
    if not as_json:
        print(f"{count} {'finding' if count == 1 else 'findings'}" if count else "no damage found")
    return 1 if count else 0


def print_records(records: Iterable[Mapping[str, Any]], as_json: bool) -> None:
    """Prints one line per record: JSON (bytes as base64), or `name=value` pairs."""
    for record in records:
        if as_json:
            print_json_line(record)
        else:
            print("  ".join(f"{name}={_show(value)}" for name, value in record.items()))


def _show(value: object) -> str:
    return repr(value)[1:] if isinstance(value, bytes) else escape_unprintable(str(value))


def print_stats(rows: Sequence[Mapping[str, Any]], as_json: bool) -> None:
    """Prints one row for each stream or queue."""
    if as_json:
        print_json(rows)
    elif rows:
        columns = list(rows[0])
        print_table(columns, [[row[column] for column in columns] for row in rows])
    else:
        print("the data folder has no streams")
