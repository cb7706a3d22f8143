"""`trimq pipeline`: the pipelines on Spark. Declares what each can be told; Spark is loaded when one runs."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from trimq.cli.failure import CommandFailure
from trimq.cli.output import print_table
from trimq.config import Settings
from trimq.errors import StartMistake

EXIT_INTERRUPTED = 130
NEEDED = ("pyspark", "pyarrow", "pandas", "matplotlib")

Run = Callable[[Any, argparse.Namespace, Any], Any]  # the pipelines, what was asked, how to run


def declare(parser: argparse.ArgumentParser) -> None:
    names = parser.add_subparsers(metavar="NAME", required=True)
    for name, (summary, flags, run) in PIPELINES.items():
        added = names.add_parser(name, help=summary, description=summary[0].upper() + summary[1:] + ".")
        flags(added)
        _common_flags(added)
        added.set_defaults(run=lambda arguments, name=name, run=run: run_pipeline(name, run, arguments))


def run_pipeline(name: str, run: Run, arguments: argparse.Namespace) -> int:
    """Run it, tell the figures, and write the report and the JSON that were asked for."""
    missing = [module for module in NEEDED if find_spec(module) is None]
    if missing:
        raise CommandFailure(f"pipelines need {missing[0]}, which is not installed: pip install 'trimq[spark]'")
    pipelines = import_module("pyspark_trimq.pipelines")
    try:
        with _session(name, arguments) as spark:
            how = _how(pipelines, arguments, spark)
            with _stoppable(how.stop):
                outcome = run(pipelines, arguments, how)
            was_cut_short = how.stop.is_set() and not arguments.continuous and name != "lag"
            if was_cut_short:
                outcome.notes.append("It was interrupted: the next run goes on from here.")
            if arguments.report:
                pipelines.write_report(outcome, Path(arguments.report))
            if arguments.json:
                pipelines.write_json(outcome, Path(arguments.json))
    except pipelines.PipelineFailure as failure:
        raise CommandFailure(str(failure)) from None
    print_table(("figure", "value"), list(outcome.figures.items()))
    for note in outcome.notes:
        print(note)
    if was_cut_short:
        return EXIT_INTERRUPTED
    return 1 if name == "audit" and outcome.found else 0


class _stoppable:
    """The first SIGINT or SIGTERM asks a run to end in order; a second one ends it at once, as Spark or Python would:
    Spark's own way is to cancel the batch under way, which fails the query."""

    def __init__(self, stop: threading.Event) -> None:
        self._stop = stop

    def __enter__(self) -> None:
        self._before = {number: signal.signal(number, self._ask) for number in (signal.SIGINT, signal.SIGTERM)}

    def _ask(self, *_: object) -> None:
        self._stop.set()
        self._give_back()

    def _give_back(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def __exit__(self, *_: object) -> None:
        self._give_back()


class _session:
    """The session, ended with the command."""

    def __init__(self, name: str, arguments: argparse.Namespace) -> None:
        self._name = f"trimq-{name}"
        self._master = arguments.master
        self._conf = dict(_setting(text) for text in arguments.conf)

    def __enter__(self) -> Any:
        # Spark and the JVM speak to stderr while they start: warnings that nobody can act on.
        with _hushed():
            self._spark = import_module("pyspark_trimq.session").make_session(self._name, self._master, self._conf)
        return self._spark

    def __exit__(self, *_: object) -> None:
        self._spark.stop()


class _hushed:
    """What a child process writes to stderr goes nowhere."""

    def __enter__(self) -> None:
        sys.stderr.flush()
        self._kept = os.dup(2)
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 2)
        os.close(nowhere)

    def __exit__(self, *_: object) -> None:
        os.dup2(self._kept, 2)
        os.close(self._kept)


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise StartMistake(f"--conf: expected NAME=VALUE, got {text!r}")
    return name, value


def _how(pipelines: Any, arguments: argparse.Namespace, spark: Any) -> Any:
    return pipelines.How(
        bootstrap=arguments.bootstrap,
        http=arguments.http,
        spark=spark,
        once=not arguments.continuous,
        every=arguments.every,
        checkpoint=arguments.checkpoint,
        rows_per_batch=arguments.rows_per_batch,
        options=dict(_setting(text) for text in arguments.option),
        for_seconds=arguments.stop_after,
        user=arguments.user,
        password_file=arguments.password_file,
    )


# --- flags ------------------------------------------------------------------------------------------------------------


def _common_flags(parser: argparse.ArgumentParser) -> None:
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
        "--option", metavar="NAME=VALUE", action="append", default=[], help="an option of the source; may be repeated"
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
        type=_count,
        default=500_000,
        help="at most so many at a time (default: %(default)s)",
    )
    own.add_argument("--report", metavar="FILE.html", help="write a page with tables and plots")
    own.add_argument("--json", metavar="FILE", help="write what was found for programs")


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text)):
        raise argparse.ArgumentTypeError(f"expected a whole number above 0, got {text!r}")
    return int(text)


def _topic_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topics", metavar="TOPIC", nargs="*", help="topics and queues")
    parser.add_argument("--pattern", metavar="REGEX", default="", help="all whose names match, in place of names")


def _lake_flags(parser: argparse.ArgumentParser) -> None:
    _topic_flags(parser)
    parser.add_argument("--lake", metavar="FOLDER", required=True, help="where the files go")
    parser.add_argument(
        "--format", default="parquet", choices=("parquet", "delta", "iceberg"), help="(default: %(default)s)"
    )


def _archive_flags(parser: argparse.ArgumentParser) -> None:
    _lake_flags(parser)
    parser.add_argument(
        "--compact-from",
        metavar="N",
        type=int,
        default=16,
        help="put N or more small files together; 0: never (default: %(default)s)",
    )


def _restore_flags(parser: argparse.ArgumentParser) -> None:
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


def _audit_flags(parser: argparse.ArgumentParser) -> None:
    _topic_flags(parser)
    parser.add_argument("--lake", metavar="FOLDER", help="check an archive in place of topics")


def _dedupe_flags(parser: argparse.ArgumentParser) -> None:
    _topic_flags(parser)
    parser.add_argument("--to", metavar="TOPIC", required=True, help="where the first ones go")
    parser.add_argument(
        "--by", default="id", help="id, key, value, header:NAME or property:NAME (default: %(default)s)"
    )
    parser.add_argument("--within", metavar="SPAN", default="1 hour", help="as far apart (default: %(default)s)")


def _letter_flags(parser: argparse.ArgumentParser) -> None:
    _topic_flags(parser)
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
        type=_count,
        default=0,
        help="read N letters a second at most (default: as fast as it goes)",
    )
    parser.add_argument(
        "--max-replays",
        metavar="N",
        type=_count,
        default=3,
        help="leave letters that came back so often (default: %(default)s)",
    )


def _lag_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("groups", metavar="GROUP", nargs="*", help="groups; all if none is named")
    parser.add_argument(
        "--topic", metavar="TOPIC", action="append", default=[], help="only this topic; may be repeated"
    )
    parser.add_argument("--seconds", type=float, default=10.0, help="how long to watch (default: %(default)s)")
    parser.add_argument("--sample-every", metavar="SECONDS", type=float, default=1.0, help="(default: %(default)s)")
    parser.add_argument("--window", metavar="SPAN", default="5s", help="of rates and latencies (default: %(default)s)")
    parser.add_argument(
        "--cores", metavar="C", type=_count, default=0, help="cores of one node, for the capacity sheet"
    )
    parser.add_argument("--busy-ms", metavar="T1", type=float, default=0.0, help="time on a core per message")
    parser.add_argument("--waiting-ms", metavar="T2", type=float, default=0.0, help="time waiting per message")
    parser.add_argument(
        "--peak", metavar="RATE", type=float, default=0.0, help="messages a second (default: the most that was seen)"
    )
    parser.add_argument(
        "--node-rate", metavar="RATE", type=float, default=0.0, help="measured on one node (default: C / T1)"
    )


def _recipe_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("recipe", metavar="FILE", help="what to do, in TOML or SQL")


# --- from flags to functions ------------------------------------------------------------------------------------------


def _archive(pipelines: Any, asked: argparse.Namespace, how: Any) -> Any:
    return pipelines.archive(
        asked.topics,
        lake=asked.lake,
        pattern=asked.pattern,
        format=asked.format,
        compact_from=asked.compact_from,
        how=how,
    )


def _restore(pipelines: Any, asked: argparse.Namespace, how: Any) -> Any:
    return pipelines.restore(
        asked.lake, topics=asked.topics, to=asked.to, append=asked.append, offset_map=asked.offset_map, how=how
    )


def _audit(pipelines: Any, asked: argparse.Namespace, how: Any) -> Any:
    return pipelines.audit(asked.topics, pattern=asked.pattern, lake=asked.lake, how=how)


def _dedupe(pipelines: Any, asked: argparse.Namespace, how: Any) -> Any:
    return pipelines.dedupe(asked.topics, to=asked.to, by=asked.by, within=asked.within, pattern=asked.pattern, how=how)


def _dead_letters(pipelines: Any, asked: argparse.Namespace, how: Any) -> Any:
    choice = pipelines.Choice(asked.reason, asked.origin, asked.exception, asked.older_than, asked.newer_than)
    return pipelines.dead_letters(
        asked.topics,
        pattern=asked.pattern,
        ledger=asked.ledger,
        redrive=asked.redrive,
        to=asked.to,
        choice=choice,
        rate=asked.rate,
        max_replays=asked.max_replays,
        how=how,
    )


def _lag(pipelines: Any, asked: argparse.Namespace, how: Any) -> Any:
    load = None
    if asked.cores:
        load = pipelines.Load(asked.cores, asked.busy_ms, asked.waiting_ms, asked.peak, asked.node_rate)
    return pipelines.lag(
        asked.groups,
        topics=asked.topic,
        seconds=asked.seconds,
        every_s=asked.sample_every,
        window=asked.window,
        load=load,
        how=how,
    )


def _aggregate(pipelines: Any, asked: argparse.Namespace, how: Any) -> Any:
    return pipelines.aggregate(asked.recipe, how=how)


def _join(pipelines: Any, asked: argparse.Namespace, how: Any) -> Any:
    return pipelines.join(asked.recipe, how=how)


def _snapshot(pipelines: Any, asked: argparse.Namespace, how: Any) -> Any:
    return pipelines.snapshot(asked.topics, lake=asked.lake, pattern=asked.pattern, format=asked.format, how=how)


PIPELINES: dict[str, tuple[str, Callable[[argparse.ArgumentParser], None], Run]] = {
    "archive": ("topics into a lake, every message once", _archive_flags, _archive),
    "restore": ("an archive back into topics", _restore_flags, _restore),
    "audit": ("what was lost, repeated or reordered; ends with 1 if anything was", _audit_flags, _audit),
    "dedupe": ("topics into another, without repetitions", _dedupe_flags, _dedupe),
    "dead-letters": ("dead letters, grouped, and sent again", _letter_flags, _dead_letters),
    "lag": ("how far groups are behind, and what a peak needs", _lag_flags, _lag),
    "aggregate": ("windows over a topic, as a file says", _recipe_flags, _aggregate),
    "join": ("two topics joined, as a file says", _recipe_flags, _join),
    "snapshot": ("the latest value of each key, into a lake", _lake_flags, _snapshot),
}
