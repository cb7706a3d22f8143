"""`trimq pipeline lag` where Spark is not installed: samples the groups of a running broker over HTTP. The age of
unread messages and the latency, for which messages have to be read, are left to Spark."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from trimq.cli.api import Api, GroupDescription, Groups, connect, group_path
from trimq.cli.failure import CommandFailure
from trimq.cli.output import print_table
from trimq.cli.pipeline_flags import default_bootstrap
from trimq.clock import monotonic_seconds, pause
from trimq.errors import StartupError

_SINKS = "spark-sink-"


class Place(NamedTuple):
    group: str
    topic: str
    stream: int


class Progress(NamedTuple):
    offset: int
    end: int


class Pace(NamedTuple):
    group: str
    lag: int
    arriving_rate: float
    read_rate: float
    drain_seconds: float | None


def run(arguments: argparse.Namespace) -> int:
    if arguments.report or arguments.json or arguments.continuous or arguments.checkpoint or arguments.cores:
        raise StartupError(
            "--report, --json, --continuous, --checkpoint and --cores need Spark: pip install 'trimq[spark]'"
        )
    address = arguments.http or arguments.bootstrap or default_bootstrap("")
    if "://" not in address and not arguments.http:
        raise StartupError(f"without Spark, lag is read from the HTTP port: give --http beside --bootstrap {address}")
    if arguments.user:
        os.environ["TRIMQ_USER"] = arguments.user
    broker = connect(address)
    started = monotonic_seconds()
    first = last = sample(broker, arguments.groups, arguments.topic)
    while (left := started + arguments.seconds - monotonic_seconds()) > 0:
        pause(min(left, arguments.sample_every))
        last = sample(broker, arguments.groups, arguments.topic)
    if not last:
        raise CommandFailure("no group reads these topics: there is no lag to report")
    paces = measure(first, last, monotonic_seconds() - started)
    columns = ("group", "lag (messages)", "arriving (messages/s)", "read (messages/s)", "drained in (s)")
    print_table(columns, paces)
    for note in drain_notes(paces):
        print(note)
    print("The age of unread messages and the end-to-end latency need Spark: pip install 'trimq[spark]'")
    return 0


def sample(broker: Api, groups: Iterable[str], topics: Iterable[str]) -> dict[Place, Progress]:
    """Returns the progress of these groups, or of all, in these topics, or in all. A stream without a committed offset
    counts from its first message."""
    wanted = set(topics)
    names = list(groups) or [
        group.name for group in broker.get("/api/groups", Groups).groups if not group.name.startswith(_SINKS)
    ]
    found: dict[Place, Progress] = {}
    for name in names:
        for at in broker.get(group_path(name), GroupDescription).cursors:
            if at.end is not None and (not wanted or at.topic in wanted):
                offset = at.end - (at.lag or 0) if at.offset is None else at.offset
                found[Place(name, at.topic, at.stream)] = Progress(offset, at.end)
    return found


def measure(first: Mapping[Place, Progress], last: Mapping[Place, Progress], seconds: float) -> list[Pace]:
    """Returns lag and rates of each group over all its topics."""
    found = []
    for group in sorted({place.group for place in last}):
        own = {place: now for place, now in last.items() if place.group == group}
        before = {place: first.get(place, now) for place, now in own.items()}
        lag = sum(max(now.end - now.offset, 0) for now in own.values())
        arriving = sum(now.end - before[place].end for place, now in own.items()) / seconds
        read = sum(now.offset - before[place].offset for place, now in own.items()) / seconds
        drain = 0.0 if not lag else lag / (read - arriving) if read > arriving else None
        found.append(Pace(group, lag, arriving, read, drain))
    return found


def drain_notes(paces: Iterable[Pace]) -> list[str]:
    stuck = [pace for pace in paces if pace.drain_seconds is None]
    notes = []
    if any(pace.arriving_rate > 0 for pace in stuck):
        notes.append("No time to drain: messages arrive at least as fast as they are read.")
    if any(pace.arriving_rate <= 0 for pace in stuck):
        notes.append("The backlog stays: nothing was read during the measurement.")
    return notes
