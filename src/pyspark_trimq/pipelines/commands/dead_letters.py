"""Pipeline `dead-letters`: groups the dead letters in topics and queues, and sends chosen ones again."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pyspark_trimq.pipelines.redrive.ledger import redrive_failures, unsent_failures
from pyspark_trimq.pipelines.redrive.letter_columns import letters
from pyspark_trimq.pipelines.redrive.redriver import LetterPosition, Redriver, SentLetters, target_topic
from pyspark_trimq.pipelines.reports.outcome import Outcome, Plot, Table, batch_plots
from pyspark_trimq.pipelines.runner.checkpoint import open_checkpoint
from pyspark_trimq.pipelines.runner.context import DEFAULT_CONTEXT, PipelineContext
from pyspark_trimq.pipelines.runner.durations import parse_duration
from pyspark_trimq.pipelines.runner.failure import plain_errors
from pyspark_trimq.pipelines.runner.progress_bar import bars
from pyspark_trimq.pipelines.runner.runner import read_current, subscription
from pyspark_trimq.pipelines.runner.topics import is_writable
from trimq.clock import monotonic_seconds, system_clock
from trimq.errors import StartupError

AGES = ((3_600_000, "under 1 hour"), (86_400_000, "under 1 day"), (7 * 86_400_000, "under 7 days"))
OLDEST = "7 days or more"
CHOSEN = "chosen"
DRY_RUN_NOTE = "Dry run: nothing was sent. Use --redrive to send the chosen letters again."


@dataclasses.dataclass(frozen=True)
class Choice:
    """Filter of letters. A letter is chosen if it matches all given fields."""

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
            found &= F.col("timestamp") <= F.timestamp_millis(F.lit(now_ms - parse_duration(self.older_than)))
        if self.newer_than:
            found &= F.col("timestamp") > F.timestamp_millis(F.lit(now_ms - parse_duration(self.newer_than)))
        return found


ALL_LETTERS = Choice()


@plain_errors()
def dead_letters(
    topics: Sequence[str] = (),
    *,
    pattern: str = "",
    ledger: bool = False,
    redrive: bool = False,
    to: str = "",
    choice: Choice = ALL_LETTERS,
    rate: int = 0,
    max_replays: int = 3,
    context: PipelineContext = DEFAULT_CONTEXT,
) -> Outcome:
    """Groups dead letters by reason, origin, exception and age. With `redrive` sends the chosen ones again, to the
    topic `to` or to the origin of each, once per checkpoint, at most `rate` letters per second (0: no limit). The next
    run checks letters again that were too young for the choice. A letter that was sent again `max_replays` times is not
    sent any more. `ledger` reads failed AMQP messages from the broker's ledger instead of topics."""
    subscribed = {} if ledger else subscription(topics, pattern)
    if ledger and (topics or pattern or to):
        raise StartupError("letters of the ledger are sent to their own queues: leave out topics, pattern and target")
    if rate < 0 or max_replays < 1:
        raise StartupError("rate must be at least 0, and max_replays at least 1")
    settings: dict[str, Any] = {
        "bootstrap": context.bootstrap,
        **subscribed,
        "to": to or "origin",
        **dataclasses.asdict(choice),
    }
    if ledger:
        return _from_ledger(context, settings, choice, redrive, rate, max_replays)
    selection = _LetterSelection(context, subscribed, settings, choice, to, max_replays)
    if not redrive:
        outcome, _ = selection.at(letters(read_current(context, subscribed)).withColumn("was_sent", F.lit(False)))
        outcome.notes.append(DRY_RUN_NOTE)
        return outcome
    with open_checkpoint(
        context.folder(Path("trimq-checkpoints/dead-letters")), "dead-letters", settings
    ) as checkpoint:
        return _redrive(selection, Redriver(context, SentLetters(checkpoint), to, rate))


def _from_ledger(
    context: PipelineContext, settings: dict[str, Any], choice: Choice, redrive: bool, rate: int, max_replays: int
) -> Outcome:
    now_ms = system_clock().message.now_ms()
    found = unsent_failures(context).withColumn("was_sent", F.lit(False)).persist()
    try:
        outcome = _group_letters(found, settings, _fate(choice.condition(now_ms), F.col("origin"), max_replays), now_ms)
        if not redrive:
            outcome.notes.append(DRY_RUN_NOTE)
            return outcome
        chosen = found.where(choice.condition(now_ms) & (F.col("replays") < max_replays)).orderBy("offset")
        outcome.figures["sent again"] = redrive_failures(context, [row["offset"] for row in chosen.collect()], rate)
        return outcome
    finally:
        found.unpersist()


class _LetterSelection:
    """Groups the current letters and selects the chosen ones."""

    def __init__(
        self,
        context: PipelineContext,
        subscribed: dict[str, str],
        settings: dict[str, Any],
        choice: Choice,
        to: str,
        max_replays: int,
    ) -> None:
        self.context = context
        self.subscribed = subscribed
        self._settings = settings
        self._choice = choice
        self._to = to
        self._max_replays = max_replays

    def at(self, marked: DataFrame) -> tuple[Outcome, list[LetterPosition]]:
        now_ms = system_clock().message.now_ms()
        fate = _fate(self._choice.condition(now_ms), target_topic(self._to), self._max_replays)
        found = marked.persist()
        try:
            outcome = _group_letters(found, self._settings, fate, now_ms)
            chosen = found.where(fate == CHOSEN).select("topic", "partition", "offset").collect()
            return outcome, [LetterPosition(*row) for row in chosen]
        finally:
            found.unpersist()

    def targets(self, outcome: Outcome) -> set[str]:
        """Returns the target topics of the chosen letters."""
        origins = {str(row["origin"]) for row in outcome.table("Groups") if row["fate"] == CHOSEN}
        return {self._to} if self._to else origins


def _redrive(selection: _LetterSelection, resending: Redriver) -> Outcome:
    """Redrives once or continuously. Each round selects again, because letters arrive and grow older."""
    context, chosen, began = selection.context, 0, monotonic_seconds()
    pause_s = parse_duration(context.every) / 1000
    with bars("dead-letters", context.show) as shown:
        resending.finish()
        while True:
            outcome, places = selection.at(resending.mark_sent(letters(read_current(context, selection.subscribed))))
            for target in selection.targets(outcome):
                is_writable(context, target)
            chosen += len(places)
            resending.send(places, shown)
            left_s = pause_s if context.for_seconds is None else context.for_seconds - (monotonic_seconds() - began)
            if context.once or left_s <= 0 or context.stop.wait(min(pause_s, left_s)):
                break
    outcome.batches = resending.batches
    outcome.figures |= {"chosen": chosen, "sent again": sum(batch.written for batch in resending.batches)}
    outcome.found = chosen
    outcome.plots += batch_plots(resending.batches)
    return outcome


def _group_letters(found: DataFrame, settings: dict[str, Any], fate: Column, now_ms: int) -> Outcome:
    age_ms = F.lit(now_ms) - F.unix_millis("timestamp")
    age = F.lit(OLDEST)
    for limit_ms, name in reversed(AGES):
        age = F.when(age_ms < limit_ms, F.lit(name)).otherwise(age)
    groups = (
        found.withColumns({"age": age, "fate": fate})
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
    ready = sum(row["letters"] for row in groups if row["fate"] == CHOSEN)
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
        F.when(F.col("was_sent"), "sent again before")
        .when(~chosen, "not chosen")
        .when(F.col("replays") >= max_replays, "replayed too often")
        .when(target.isNull(), "no origin known")
        .otherwise(CHOSEN)
    )
