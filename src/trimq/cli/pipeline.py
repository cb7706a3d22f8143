"""`trimq pipeline`: runs the Spark pipelines with the options of the command line. Spark is loaded only for a run."""

from __future__ import annotations

import argparse
import os
import re
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from trimq.cli import pipeline_flags
from trimq.cli.failure import CommandFailure
from trimq.cli.output import print_table
from trimq.errors import StartupError

EXIT_INTERRUPTED = 130
CONNECT, CONNECT_PORT, CONNECT_WAIT_S = "sc://", 15002, 10
LAUNCHER_BYTES = 1 << 20  # more than Spark's launcher writes
NEEDED = ("pyspark", "pyarrow", "pandas", "matplotlib")

Run = Callable[[Any, argparse.Namespace, Any], Any]  # (package of pipelines, arguments, run options)


def declare(parser: argparse.ArgumentParser) -> None:
    names = parser.add_subparsers(metavar="NAME", required=True)
    for name, (summary, flags, run) in PIPELINES.items():
        added = names.add_parser(name, help=summary, description=summary[0].upper() + summary[1:] + ".")
        flags(added)
        pipeline_flags.common_flags(added)
        added.set_defaults(run=lambda arguments, name=name, run=run: run_pipeline(name, run, arguments))


def run_pipeline(name: str, run: Run, arguments: argparse.Namespace) -> int:
    """Runs the pipeline, prints its figures and writes the requested report and JSON file."""
    missing = [module for module in NEEDED if find_spec(module) is None]
    if missing and name == "lag":
        from trimq.cli.lag import run as measure_lag

        return measure_lag(arguments)
    if missing:
        raise CommandFailure(f"pipelines need {missing[0]}, which is not installed: pip install 'trimq[spark]'")
    pipelines = import_module("pyspark_trimq.pipelines")
    for path in filter(None, (arguments.report, arguments.json)):
        _check_writable(Path(path))
    _reject_unused_flags(name, arguments)
    try:
        with _PipelineSession(name, arguments) as spark:
            context = _context(pipelines, arguments, spark)
            with _StopOnSignal(context.stop):
                outcome = run(pipelines, arguments, context)
            was_cut_short = context.stop.is_set() and not arguments.continuous and name != "lag"
            if was_cut_short:
                ended = (
                    "The run was interrupted"
                    if arguments.stop_after is None
                    else "The run ended before all messages were read"
                )
                outcome.notes.append(f"{ended}: the next run continues from here.")
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


def _check_writable(path: Path) -> None:
    """Raises StartupError if the file cannot be written, before hours of work."""
    is_new = not path.exists()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a"):
            pass
        if is_new:
            path.unlink()
    except OSError as error:
        raise StartupError(f"{path} cannot be written: {error.strerror}") from None


def _reject_unused_flags(name: str, arguments: argparse.Namespace) -> None:
    """Raises StartupError for --continuous and --checkpoint if the pipeline reads its input only once."""
    if not (arguments.continuous or arguments.checkpoint):
        return
    if name == "dead-letters" and (arguments.ledger or not arguments.redrive):
        raise StartupError(
            "without --redrive, or with --ledger, dead letters are read once: leave out --continuous and --checkpoint"
        )
    if name == "audit" and arguments.lake:
        raise StartupError("an archive is audited once: use --continuous and --checkpoint only to audit topics")


class _StopOnSignal:
    """Stops a run in order at the first SIGINT or SIGTERM; a second signal has its usual effect. Spark's own handler
    would cancel the current batch, which fails the query."""

    def __init__(self, stop: threading.Event) -> None:
        self._stop = stop

    def __enter__(self) -> None:
        self._before = {number: signal.signal(number, self._request_stop) for number in (signal.SIGINT, signal.SIGTERM)}

    def _request_stop(self, *_: object) -> None:
        self._stop.set()
        self._restore_handlers()

    def _restore_handlers(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def __exit__(self, *_: object) -> None:
        self._restore_handlers()


class _PipelineSession:
    """Spark session that is stopped at the end of the command."""

    def __init__(self, name: str, arguments: argparse.Namespace) -> None:
        self._name = f"trimq-{name}"
        self._master = arguments.master
        self._conf = dict(_setting(text) for text in arguments.conf)

    def __enter__(self) -> Any:
        _check_connect_server(self._master or "")
        failure = import_module("pyspark_trimq.pipelines.runner.failure")
        # Spark and the JVM write warnings to stderr at start that a user cannot act on.
        captured = _CapturedStderr()
        try:
            with captured, failure.plain_errors():
                self._spark = import_module("pyspark_trimq.session").make_session(self._name, self._master, self._conf)
        except (failure.PipelineFailure, StartupError) as error:
            where = f" on the master {self._master}" if self._master else ""
            raise CommandFailure(f"Spark does not start{where}: {captured.reason() or error}") from None
        return self._spark

    def __exit__(self, *_: object) -> None:
        try:
            self._spark.stop()
        except Exception as error:
            # If the JVM is gone, the failure that ended it was reported already.
            if not import_module("pyspark_trimq.pipelines.runner.failure").is_java_gone(error):
                raise


def _check_connect_server(master: str) -> None:
    """Raises CommandFailure if no server listens at the Spark Connect address, since its client would wait for
    minutes."""
    if not master.startswith(CONNECT):
        return
    try:
        parts = urlsplit(f"//{master.removeprefix(CONNECT).partition('/')[0]}")
        host, port = parts.hostname or "", parts.port or CONNECT_PORT
        if not host:
            raise ValueError("the host is missing")
    except ValueError as error:
        raise CommandFailure(f"--master {master} is not an address of a Spark Connect server: {error}") from None
    try:
        socket.create_connection((host, port), CONNECT_WAIT_S).close()
    except OSError as error:
        raise CommandFailure(f"no Spark Connect server answers at {host}:{port}: {error}") from None


class _CapturedStderr:
    """Captures stderr, including that of child processes. Spark's launcher reports its failure only there."""

    def __enter__(self) -> None:
        sys.stderr.flush()
        self._reason = ""
        self._kept = os.dup(2)
        self._written = tempfile.TemporaryFile()
        os.dup2(self._written.fileno(), 2)

    def __exit__(self, *_: object) -> None:
        os.dup2(self._kept, 2)
        os.close(self._kept)
        with self._written as written:
            written.seek(0)
            found = re.search(
                rb"^(?:Exception in thread|Error:?).*?: (.+)$", written.read(LAUNCHER_BYTES), re.MULTILINE
            )
            self._reason = "" if found is None else found[1].decode(errors="replace").strip().removesuffix(".")

    def reason(self) -> str:
        """Returns the reason that Spark's launcher reported, or an empty text."""
        return self._reason


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise StartupError(f"--conf: expected NAME=VALUE, got {text!r}")
    return name, value


def _context(pipelines: Any, arguments: argparse.Namespace, spark: Any) -> Any:
    return pipelines.PipelineContext(
        bootstrap=arguments.bootstrap or pipeline_flags.default_bootstrap(arguments.http),
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


# --- from flags to functions ------------------------------------------------------------------------------------------


def _archive(pipelines: Any, arguments: argparse.Namespace, context: Any) -> Any:
    return pipelines.archive(
        arguments.topics,
        lake=arguments.lake,
        pattern=arguments.pattern,
        format=arguments.format,
        compact_from=arguments.compact_from,
        keep_replaced=arguments.keep_replaced,
        context=context,
    )


def _restore(pipelines: Any, arguments: argparse.Namespace, context: Any) -> Any:
    return pipelines.restore(
        arguments.lake,
        topics=arguments.topics,
        to=arguments.to,
        append=arguments.append,
        offset_map=arguments.offset_map,
        context=context,
    )


def _audit(pipelines: Any, arguments: argparse.Namespace, context: Any) -> Any:
    return pipelines.audit(arguments.topics, pattern=arguments.pattern, lake=arguments.lake, context=context)


def _dedupe(pipelines: Any, arguments: argparse.Namespace, context: Any) -> Any:
    return pipelines.dedupe(
        arguments.topics,
        to=arguments.to,
        by=arguments.by,
        within=arguments.within,
        pattern=arguments.pattern,
        context=context,
    )


def _dead_letters(pipelines: Any, arguments: argparse.Namespace, context: Any) -> Any:
    choice = pipelines.Choice(
        arguments.reason, arguments.origin, arguments.exception, arguments.older_than, arguments.newer_than
    )
    return pipelines.dead_letters(
        arguments.topics,
        pattern=arguments.pattern,
        ledger=arguments.ledger,
        redrive=arguments.redrive,
        to=arguments.to,
        choice=choice,
        rate=arguments.rate,
        max_replays=arguments.max_replays,
        context=context,
    )


def _lag(pipelines: Any, arguments: argparse.Namespace, context: Any) -> Any:
    load = None
    if arguments.cores:
        load = pipelines.Load(
            arguments.cores, arguments.busy_ms, arguments.waiting_ms, arguments.peak, arguments.node_rate
        )
    return pipelines.lag(
        arguments.groups,
        topics=arguments.topic,
        seconds=arguments.seconds,
        every_s=arguments.sample_every,
        window=arguments.window,
        load=load,
        context=context,
    )


def _aggregate(pipelines: Any, arguments: argparse.Namespace, context: Any) -> Any:
    return pipelines.aggregate(arguments.recipe, context=context)


def _join(pipelines: Any, arguments: argparse.Namespace, context: Any) -> Any:
    return pipelines.join(arguments.recipe, context=context)


def _snapshot(pipelines: Any, arguments: argparse.Namespace, context: Any) -> Any:
    return pipelines.snapshot(
        arguments.topics,
        lake=arguments.lake,
        pattern=arguments.pattern,
        format=arguments.format,
        keep_replaced=arguments.keep_replaced,
        context=context,
    )


PIPELINES: dict[str, tuple[str, Callable[[argparse.ArgumentParser], None], Run]] = {
    "archive": ("archive topics in a lake, every message exactly once", pipeline_flags.archive_flags, _archive),
    "restore": ("restore topics from an archive", pipeline_flags.restore_flags, _restore),
    "audit": (
        "find lost, repeated and reordered messages; exit 1 if there are any",
        pipeline_flags.audit_flags,
        _audit,
    ),
    "dedupe": ("copy topics into another without duplicates", pipeline_flags.dedupe_flags, _dedupe),
    "dead-letters": ("group dead letters and send them again", pipeline_flags.dead_letter_flags, _dead_letters),
    "lag": ("measure the lag of groups and the capacity for a peak", pipeline_flags.lag_flags, _lag),
    "aggregate": ("aggregate a topic in windows, as a recipe file describes", pipeline_flags.recipe_flags, _aggregate),
    "join": ("join two topics, as a recipe file describes", pipeline_flags.recipe_flags, _join),
    "snapshot": ("write the latest value of each key to a lake", pipeline_flags.lake_flags, _snapshot),
}
