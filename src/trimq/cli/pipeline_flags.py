"""The flags of `trimq pipeline`: what each pipeline can be told, and what all of them can."""

from __future__ import annotations

import argparse
import os

from trimq.config import Settings


def common_flags(parser: argparse.ArgumentParser) -> None:
    own = parser.add_argument_group("how it runs")
    bootstrap = os.environ.get("TRIMQ_BOOTSTRAP") or f"http://{os.environ.get('TRIMQ_HTTP') or Settings().http.listen}"
    own.add_argument(
        "--bootstrap", metavar="ADDRESS", default=bootstrap, help="http://host:8180 or host:9092 (default: %(default)s)"
    )
    own.add_argument("--http", metavar="ADDRESS", default="", help="the HTTP port, where the bootstrap is another")
    own.add_argument(
        "--user",
        metavar="NAME",
        default=os.environ.get("TRIMQ_USER", ""),
        help="who asks, where the broker has users (or TRIMQ_USER); the password is read from TRIMQ_PASSWORD",
    )
    own.add_argument("--password-file", metavar="FILE", help="read the password from there")
    own.add_argument("--master", metavar="URL", help="where Spark runs (default: local[*])")
    own.add_argument(
        "--conf", metavar="NAME=VALUE", action="append", default=[], help="a setting of Spark; may be repeated"
    )
    own.add_argument(
        "--option",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="an option of the source or (compression, delivery, kafka.*) of the sink; may be repeated",
    )
    often = own.add_mutually_exclusive_group()
    often.add_argument("--once", action="store_true", help="read up to what is there now, then end (the default)")
    often.add_argument("--continuous", action="store_true", help="go on until it is interrupted")
    own.add_argument(
        "--every",
        metavar="SPAN",
        default="10 seconds",
        help="with --continuous: a batch so often (default: %(default)s)",
    )
    own.add_argument("--stop-after", metavar="SECONDS", type=float, help="with --continuous: end after so long")
    own.add_argument("--checkpoint", metavar="FOLDER", help="where it keeps how far it is")
    own.add_argument(
        "--rows-per-batch",
        metavar="N",
        type=count,
        default=500_000,
        help="at most so many at a time (default: %(default)s)",
    )
    own.add_argument("--report", metavar="FILE.html", help="write a page with tables and plots")
    own.add_argument("--json", metavar="FILE", help="write what was found for programs")


def count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text)):
        raise argparse.ArgumentTypeError(f"expected a whole number above 0, got {text!r}")
    return int(text)


def topic_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topics", metavar="TOPIC", nargs="*", help="topics and queues")
    parser.add_argument("--pattern", metavar="REGEX", default="", help="all whose names match, in place of names")


def lake_flags(parser: argparse.ArgumentParser) -> None:
    topic_flags(parser)
    parser.add_argument("--lake", metavar="FOLDER", required=True, help="where the files go")
    parser.add_argument(
        "--format", default="parquet", choices=("parquet", "delta", "iceberg"), help="(default: %(default)s)"
    )
    parser.add_argument(
        "--keep-replaced",
        metavar="SPAN",
        default="1 hour",
        help="of Delta and Iceberg: replaced files stay so long, for readers; 0: not at all (default: %(default)s)",
    )


def archive_flags(parser: argparse.ArgumentParser) -> None:
    lake_flags(parser)
    parser.add_argument(
        "--compact-from",
        metavar="N",
        type=int,
        default=16,
        help="put N or more small files together; 0: never (default: %(default)s)",
    )


def restore_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topics", metavar="TOPIC", nargs="*", help="topics of the archive; all if none is named")
    parser.add_argument("--lake", metavar="FOLDER", required=True, help="the archive")
    parser.add_argument(
        "--to",
        metavar="NAME",
        default="{topic}",
        help="where to; {topic} stands for the old name (default: %(default)s)",
    )
    parser.add_argument("--append", action="store_true", help="also into a topic that holds other messages")
    parser.add_argument(
        "--offset-map", metavar="FOLDER", help="where the table of old and new offsets goes (default: in the archive)"
    )


def audit_flags(parser: argparse.ArgumentParser) -> None:
    topic_flags(parser)
    parser.add_argument("--lake", metavar="FOLDER", help="check an archive in place of topics")


def dedupe_flags(parser: argparse.ArgumentParser) -> None:
    topic_flags(parser)
    parser.add_argument("--to", metavar="TOPIC", required=True, help="where the first ones go")
    parser.add_argument(
        "--by", default="id", help="id, key, value, header:NAME or property:NAME (default: %(default)s)"
    )
    parser.add_argument("--within", metavar="SPAN", default="1 hour", help="as far apart (default: %(default)s)")


def dead_letter_flags(parser: argparse.ArgumentParser) -> None:
    topic_flags(parser)
    parser.add_argument("--ledger", action="store_true", help="what AMQP's queues gave up, in place of topics")
    parser.add_argument("--redrive", action="store_true", help="send the chosen letters again; else nothing is sent")
    parser.add_argument("--to", metavar="TOPIC", default="", help="where to (default: where each came from)")
    for name in ("reason", "origin", "exception"):
        parser.add_argument(f"--{name}", metavar="TEXT", default="", help=f"only letters with this {name}")
    parser.add_argument("--older-than", metavar="SPAN", default="", help="only letters at least so old")
    parser.add_argument("--newer-than", metavar="SPAN", default="", help="only letters not so old")
    parser.add_argument(
        "--rate",
        metavar="N",
        type=count,
        default=0,
        help="read N letters a second at most (default: as fast as it goes)",
    )
    parser.add_argument(
        "--max-replays",
        metavar="N",
        type=count,
        default=3,
        help="leave letters that came back so often (default: %(default)s)",
    )


def lag_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("groups", metavar="GROUP", nargs="*", help="groups; all if none is named")
    parser.add_argument(
        "--topic", metavar="TOPIC", action="append", default=[], help="only this topic; may be repeated"
    )
    parser.add_argument("--seconds", type=float, default=10.0, help="how long to watch (default: %(default)s)")
    parser.add_argument("--sample-every", metavar="SECONDS", type=float, default=1.0, help="(default: %(default)s)")
    parser.add_argument("--window", metavar="SPAN", default="5s", help="of rates and latencies (default: %(default)s)")
    parser.add_argument("--cores", metavar="C", type=count, default=0, help="cores of one node, for the capacity sheet")
    parser.add_argument("--busy-ms", metavar="T1", type=float, default=0.0, help="time on a core per message")
    parser.add_argument("--waiting-ms", metavar="T2", type=float, default=0.0, help="time waiting per message")
    parser.add_argument(
        "--peak", metavar="RATE", type=float, default=0.0, help="messages a second (default: the most that was seen)"
    )
    parser.add_argument(
        "--node-rate", metavar="RATE", type=float, default=0.0, help="measured on one node (default: C / T1)"
    )


def recipe_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("recipe", metavar="FILE", help="what to do, in TOML or SQL")
