"""The pipeline `dead-letters`: what lies in dead-letter topics and queues, grouped; and the chosen ones sent again."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pyspark_trimq.pipelines.checkpoints import claim
from pyspark_trimq.pipelines.failure import told_plainly
from pyspark_trimq.pipelines.ledger import failed, send_again
from pyspark_trimq.pipelines.letters import counted_again, letters
from pyspark_trimq.pipelines.outcome import Outcome, Plot, Table, batch_plots
from pyspark_trimq.pipelines.running import (
    DEFAULT,
    How,
    drive,
    into_topic,
    is_writable,
    snapshot_of,
    stream,
    subscription,
)
from pyspark_trimq.pipelines.spans import milliseconds
from trimq.clock import system_clock
from trimq.errors import StartMistake

AGES = ((3_600_000, "under 1 hour"), (86_400_000, "under 1 day"), (7 * 86_400_000, "under 7 days"))
OLDEST = "7 days or more"


@dataclasses.dataclass(frozen=True)
class Choice:
    """Which letters are meant: those to which all that is said applies."""

    reason: str = ""
    origin: str = ""
    exception: str = ""
    older_than: str = ""
    newer_than: str = ""

    def condition(self, now_ms: int) -> Column:
        found = F.lit(True)
        for name in ("reason", "origin", "exception"):
            if value := getattr(self, name):
                found &= F.col(name).eqNullSafe(value)
        if self.older_than:
            found &= F.col("timestamp") <= F.timestamp_millis(F.lit(now_ms - milliseconds(self.older_than)))
        if self.newer_than:
            found &= F.col("timestamp") > F.timestamp_millis(F.lit(now_ms - milliseconds(self.newer_than)))
        return found


ALL = Choice()


@told_plainly()
def dead_letters(
    topics: Sequence[str] = (),
    *,
    pattern: str = "",
    ledger: bool = False,
    redrive: bool = False,
    to: str = "",
    choice: Choice = ALL,
    rate: int = 0,
    max_replays: int = 3,
    how: How = DEFAULT,
) -> Outcome:
    """Group the letters by reason, origin, exception and age. With `redrive` the chosen ones are sent again, to the
    topic `to` or to where each came from, each once per checkpoint, `rate` letters a second at most (0: as fast as it
    goes). A letter that came back `max_replays` times stays where it is. `ledger`: those that AMQP's queues gave up,
    from the broker's ledger of failures, in place of topics."""
    subscribed = {} if ledger else subscription(topics, pattern)
    if ledger and (topics or pattern or to):
        raise StartMistake("letters of the ledger go back to their own queues: name no topics with it")
    if rate < 0 or max_replays < 1:
        raise StartMistake("a rate is not negative, and a letter may be sent again once at least")
    now_ms = system_clock().message.now_ms()
    settings: dict[str, Any] = {
        "bootstrap": how.bootstrap,
        **subscribed,
        "to": to or "origin",
        **dataclasses.asdict(choice),
    }
    found = (failed(how) if ledger else letters(snapshot_of(how, subscribed))).persist()
    try:
        outcome = _grouped(found, settings, choice.condition(now_ms), to, max_replays, now_ms)
        if ledger and redrive:
            chosen = found.where(choice.condition(now_ms) & (F.col("replays") < max_replays)).orderBy("offset")
            outcome.figures["sent again"] = send_again(how, [row["offset"] for row in chosen.collect()], rate)
            return outcome
    finally:
        found.unpersist()
    if not redrive:
        outcome.notes.append("Dry run: nothing was sent. With --redrive the chosen letters are sent again.")
        return outcome
    for origin in {to} if to else _origins(outcome):
        is_writable(how, origin)
    with claim(how.folder(Path("trimq-checkpoints/dead-letters")), "dead-letters", settings) as checkpoint:
        frame = _again(letters(_paced(how, subscribed, rate)), choice.condition(now_ms), to, max_replays)
        batches = drive(how, "dead-letters", into_topic(how, frame), checkpoint, paced=bool(rate))
    outcome.batches = batches
    outcome.figures["sent again"] = sum(batch.written for batch in batches)
    outcome.plots += batch_plots(batches)
    return outcome


def _origins(outcome: Outcome) -> set[str]:
    """Where the chosen letters would go."""
    return {str(row["origin"]) for row in outcome.table("Groups") if row["fate"] == "chosen"}


def _paced(how: How, subscribed: dict[str, str], rate: int) -> DataFrame:
    limit = {"maxOffsetsPerTrigger": str(rate)} if rate else {}
    return stream(how, subscribed, startingOffsets="earliest", **limit)


def _again(found: DataFrame, chosen: Column, to: str, max_replays: int) -> DataFrame:
    target = F.lit(to) if to else F.col("origin")
    kept = found.where(chosen & (F.col("replays") < max_replays) & target.isNotNull())
    return kept.select("key", "value", counted_again().alias("headers"), target.alias("topic"))


def _grouped(
    found: DataFrame, settings: dict[str, Any], chosen: Column, to: str, max_replays: int, now_ms: int
) -> Outcome:
    age_ms = F.lit(now_ms) - F.unix_millis("timestamp")
    age = F.lit(OLDEST)
    for limit_ms, name in reversed(AGES):
        age = F.when(age_ms < limit_ms, F.lit(name)).otherwise(age)
    target = F.lit(to) if to else F.col("origin")
    groups = (
        found.withColumns({"age": age, "chosen": chosen, "fate": _fate(chosen, target, max_replays)})
        .groupBy("topic", "reason", "origin", "exception", "age", "fate")
        .agg(
            F.count("*").alias("letters"),
            F.min("timestamp").cast("string").alias("oldest"),
            F.max("timestamp").cast("string").alias("newest"),
            F.any_value("message", True).alias("message"),
        )
        .orderBy(F.desc("letters"), "reason", "origin")
        .collect()
    )
    total = sum(row["letters"] for row in groups)
    ready = sum(row["letters"] for row in groups if row["fate"] == "chosen")
    looping = sum(row["letters"] for row in groups if row["fate"] == "replayed too often")
    outcome = Outcome(
        "dead-letters", settings, {"letters": total, "chosen": ready, "replayed too often": looping}, found=ready
    )
    columns = ("topic", "reason", "origin", "exception", "age", "fate", "letters", "oldest", "newest", "message")
    outcome.tables.append(Table("Groups", columns, [tuple(row) for row in groups]))
    for name in ("reason", "origin", "exception", "age"):
        bars: dict[str, float] = {}
        for row in groups:
            key = row[name] or "(none)"
            bars[key] = bars.get(key, 0.0) + row["letters"]
        if bars:
            outcome.plots.append(Plot(f"Letters by {name}", "bar", name, "letters", {"letters": list(bars.items())}))
    return outcome


def _fate(chosen: Column, target: Column, max_replays: int) -> Column:
    return (
        F.when(~chosen, "not chosen")
        .when(F.col("replays") >= max_replays, "replayed too often")
        .when(target.isNull(), "no origin known")
        .otherwise("chosen")
    )
