"""Properties of all pipelines: folders of checkpoints, topics created through a Kafka port, checks before the run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pyspark_trimq.pipelines import PipelineContext, audit, dedupe, restore, snapshot, write_report
from pyspark_trimq.pipelines.commands.archive import archive
from pyspark_trimq.pipelines.reports.outcome import Outcome, Plot
from trimq.testing import Broker


def trimq(*words: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "trimq.cli", "pipeline", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=150, check=False)
    return done.returncode, done.stdout + done.stderr


def test_audits_of_two_topics_in_one_folder_have_a_checkpoint_each(
    spark: Any, broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    context = PipelineContext(bootstrap=broker.http, spark=spark, show=False)
    for topic in ("a", "b"):
        broker.create_topic(topic)
        broker.send(topic, "body")
        assert audit([topic], context=context).figures["records without a sequence"] == 1
    names = sorted(path.name for path in (tmp_path / "trimq-checkpoints" / "audit").iterdir())
    assert [name.partition("-")[0] for name in names] == ["a", "b"]
    assert audit(["a"], context=context).batches == [], "it goes on from its own"


def test_topics_are_made_through_the_kafka_port_where_that_is_the_bootstrap(
    spark: Any, broker: Broker, tmp_path: Path
) -> None:
    broker.create_topic("orders", partitions=2)
    for number in range(4):
        broker.send("orders", str(number), headers={"message-id": b"%d" % (number % 2)}, partition=number % 2)
    context = PipelineContext(bootstrap=broker.kafka, spark=spark, show=False, http="http://127.0.0.1:9")
    archive(["orders"], lake=tmp_path / "lake", context=context)
    assert restore(tmp_path / "lake", to="again", context=context).figures["rows written"] == 4
    assert len(broker.records("again", 1)) == 2
    checkpoint = PipelineContext(bootstrap=broker.kafka, spark=spark, show=False, checkpoint=tmp_path / "checkpoint")
    assert dedupe(["orders"], to="once", context=checkpoint).figures["written"] == 2


def test_a_snapshot_has_as_many_files_as_its_size_asks_for(
    spark: Any, broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyspark_trimq.pipelines.commands import snapshot as snapshots

    monkeypatch.setattr(snapshots, "WHOLE_BYTES", 1000)
    broker.create_topic("prices")
    shuffled = spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.set("spark.sql.shuffle.partitions", "4")
    spark.conf.set("spark.sql.adaptive.enabled", "false")
    try:
        for turn in range(2):
            for number in range(50):
                broker.send("prices", f"{turn} {number}", f"key {number}")
            outcome = snapshot(
                ["prices"], lake=tmp_path / "lake", context=PipelineContext(broker.http, spark=spark, show=False)
            )
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", shuffled)
        spark.conf.set("spark.sql.adaptive.enabled", "true")
    assert outcome.figures["keys"] == 50
    assert int(str(outcome.figures["files"])) > 1


def test_a_report_that_cannot_be_written_is_refused_before_the_run(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for flag in ("--report", "--json"):
        code, output = trimq("archive", "orders", "--lake", str(tmp_path / "lake"), flag, str(tmp_path / "file" / "x"))
        assert code == 2
        assert "cannot be written: " in output
    assert not (tmp_path / "lake").exists()


def test_flags_without_effect_are_refused(tmp_path: Path) -> None:
    for flags in (["--continuous"], ["--checkpoint", str(tmp_path / "checkpoint")]):
        code, output = trimq("dead-letters", "orders.DLT", *flags)
        assert (code, "leave out --continuous and --checkpoint" in output) == (2, True), output
        code, output = trimq("audit", "--lake", str(tmp_path), *flags)
        assert (code, "only to audit topics" in output) == (2, True), output


def test_a_single_plot_has_the_width_of_one(tmp_path: Path) -> None:
    outcome = Outcome("lag", {}, plots=[Plot("Lag", "line", "seconds", "messages", {"a": [(0, 1.0), (1, 2.0)]})])
    write_report(outcome, tmp_path / "report.html")
    assert "auto-fill" in (tmp_path / "report.html").read_text()
