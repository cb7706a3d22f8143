"""Flags of `trimq pipeline`: those of each pipeline and those common to all."""

from __future__ import annotations

import argparse
import os

from trimq.config import Settings


def common_flags(parser: argparse.ArgumentParser) -> None:
    own = parser.add_argument_group("run options")
    own.add_argument(
        "--bootstrap",
        metavar="ADDRESS",
        default="",
        help="http://host:8180, https://host:8180, or the Kafka address host:9092 (or TRIMQ_BOOTSTRAP; default: "
        f"{default_bootstrap('')})",
    )
    own.add_argument(
        "--http",
        metavar="ADDRESS",
        default="",
        help="HTTP address: host:8180, http://host:8180 or https://host:8180. Given alone, it is the address of the "
        "broker; beside a --bootstrap that is the Kafka address, the HTTP port of the same broker",
    )
    own.add_argument(
        "--user",
        metavar="NAME",
        default=os.environ.get("TRIMQ_USER", ""),
        help="user name, if the broker has users (or TRIMQ_USER); the password is read from TRIMQ_PASSWORD",
    )
    own.add_argument("--password-file", metavar="FILE", help="read the password from this file")
    own.add_argument("--master", metavar="URL", help="Spark master (default: local[*])")
    own.add_argument("--conf", metavar="NAME=VALUE", action="append", default=[], help="Spark setting; may be repeated")
    own.add_argument(
        "--option",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="option of the source or (compression, delivery, kafka.*) of the sink; may be repeated",
    )
    often = own.add_mutually_exclusive_group()
    often.add_argument("--once", action="store_true", help="read up to the current end, then stop (the default)")
    often.add_argument("--continuous", action="store_true", help="run until interrupted")
    own.add_argument(
        "--every",
        metavar="SPAN",
        default="10 seconds",
        help="with --continuous: interval between batches (default: %(default)s)",
    )
    own.add_argument("--stop-after", metavar="SECONDS", type=float, help="with --continuous: stop after this time")
    own.add_argument("--checkpoint", metavar="FOLDER", help="folder for the progress of the pipeline")
    own.add_argument(
        "--rows-per-batch",
        metavar="N",
        type=count,
        default=500_000,
        help="maximum number of rows per batch (default: %(default)s)",
    )
    own.add_argument("--report", metavar="FILE.html", help="write an HTML report with tables and plots")
    own.add_argument("--json", metavar="FILE", help="write the results as JSON")


def default_bootstrap(http: str) -> str:
    """Returns the address of the broker if --bootstrap is not given; `http` is the value of --http."""
    if not http and (bootstrap := os.environ.get("TRIMQ_BOOTSTRAP")):
        return bootstrap
    http = http or os.environ.get("TRIMQ_HTTP") or str(Settings().http.listen)
    return http if "://" in http else f"http://{http}"


def count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text)):
        raise argparse.ArgumentTypeError(f"expected a whole number above 0, got {text!r}")
    return int(text)


def topic_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topics", metavar="TOPIC", nargs="*", help="topics and queues")
    parser.add_argument(
        "--pattern", metavar="REGEX", default="", help="all topics and queues whose names match, instead of names"
    )


def lake_flags(parser: argparse.ArgumentParser) -> None:
    topic_flags(parser)
    parser.add_argument("--lake", metavar="FOLDER", required=True, help="folder of the lake")
    parser.add_argument(
        "--format", default="parquet", choices=("parquet", "delta", "iceberg"), help="(default: %(default)s)"
    )
    parser.add_argument(
        "--keep-replaced",
        metavar="SPAN",
        default="1 hour",
        help="Delta and Iceberg: how long replaced files are kept for readers; 0: not at all (default: %(default)s)",
    )


def archive_flags(parser: argparse.ArgumentParser) -> None:
    lake_flags(parser)
    parser.add_argument(
        "--compact-from",
        metavar="N",
        type=int,
        default=16,
        help="merge small files if there are N or more; 0: never (default: %(default)s)",
    )


def restore_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topics", metavar="TOPIC", nargs="*", help="topics of the archive (default: all)")
    parser.add_argument("--lake", metavar="FOLDER", required=True, help="the archive")
    parser.add_argument(
        "--to",
        metavar="NAME",
        default="{topic}",
        help="target topic; {topic} stands for the archived name (default: %(default)s)",
    )
    parser.add_argument("--append", action="store_true", help="also restore into a topic that has other messages")
    parser.add_argument(
        "--offset-map", metavar="FOLDER", help="folder for the table of old and new offsets (default: in the archive)"
    )


def audit_flags(parser: argparse.ArgumentParser) -> None:
    topic_flags(parser)
    parser.add_argument("--lake", metavar="FOLDER", help="audit an archive instead of topics")


def dedupe_flags(parser: argparse.ArgumentParser) -> None:
    topic_flags(parser)
    parser.add_argument("--to", metavar="TOPIC", required=True, help="topic for the first copy of each message")
    parser.add_argument(
        "--by", default="id", help="id, key, value, header:NAME or property:NAME (default: %(default)s)"
    )
    parser.add_argument(
        "--within", metavar="SPAN", default="1 hour", help="largest time between duplicates (default: %(default)s)"
    )


def dead_letter_flags(parser: argparse.ArgumentParser) -> None:
    topic_flags(parser)
    parser.add_argument("--ledger", action="store_true", help="read the ledger of failed messages instead of topics")
    parser.add_argument(
        "--redrive", action="store_true", help="send the selected dead letters again; without it, nothing is sent"
    )
    parser.add_argument(
        "--to", metavar="TOPIC", default="", help="target topic (default: the origin of each dead letter)"
    )
    for name in ("reason", "origin", "exception"):
        parser.add_argument(f"--{name}", metavar="TEXT", default="", help=f"only dead letters with this {name}")
    parser.add_argument("--older-than", metavar="SPAN", default="", help="only dead letters of at least this age")
    parser.add_argument("--newer-than", metavar="SPAN", default="", help="only dead letters below this age")
    parser.add_argument(
        "--rate",
        metavar="N",
        type=count,
        default=0,
        help="read at most N dead letters per second (default: unlimited)",
    )
    parser.add_argument(
        "--max-replays",
        metavar="N",
        type=count,
        default=3,
        help="skip dead letters that were sent again this often (default: %(default)s)",
    )


def lag_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("groups", metavar="GROUP", nargs="*", help="groups (default: all)")
    parser.add_argument(
        "--topic", metavar="TOPIC", action="append", default=[], help="only this topic; may be repeated"
    )
    parser.add_argument(
        "--seconds", type=float, default=10.0, help="duration of the measurement (default: %(default)s)"
    )
    parser.add_argument("--sample-every", metavar="SECONDS", type=float, default=1.0, help="(default: %(default)s)")
    parser.add_argument(
        "--window", metavar="SPAN", default="5s", help="window for rates and latencies (default: %(default)s)"
    )
    parser.add_argument("--cores", metavar="C", type=count, default=0, help="cores of one node, for the capacity sheet")
    parser.add_argument("--busy-ms", metavar="T1", type=float, default=0.0, help="CPU time per message")
    parser.add_argument("--waiting-ms", metavar="T2", type=float, default=0.0, help="waiting time per message")
    parser.add_argument(
        "--peak",
        metavar="RATE",
        type=float,
        default=0.0,
        help="messages per second (default: the highest measured rate)",
    )
    parser.add_argument(
        "--node-rate", metavar="RATE", type=float, default=0.0, help="messages per second of one node (default: C / T1)"
    )


def recipe_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("recipe", metavar="FILE", help="recipe in TOML or SQL")
