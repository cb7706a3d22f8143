"""A session of a program that runs without an activated environment: its workers need the driver's Python."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pyspark_trimq.mistakes import Mistake
from pyspark_trimq.runtime.java import find_java_home
from pyspark_trimq.runtime.session_python import check_python, prepare_python
from pyspark_trimq.runtime.worker_python import find_worker_python
from trimq.testing import Broker

PROJECT = Path(__file__).parents[3]

PROGRAM = """
import sys
from pyspark.sql import SparkSession
from pyspark_trimq import register

builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
spark = builder.config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC").getOrCreate()
register(spark)

def orders(reader):
    return reader.format("trimq").option("bootstrap", sys.argv[1]).option("subscribe", "orders")

print("rows:", [bytes(row.value) for row in orders(spark.read).load().collect()])
copies = orders(spark.readStream).option("startingOffsets", "earliest").load().select("value").writeStream
copies = copies.format("trimq").option("bootstrap", sys.argv[1]).option("topic", "copies")
copies.option("checkpointLocation", sys.argv[2]).trigger(availableNow=True).start().awaitTermination()
spark.stop()
"""


def write_python(path: Path, script: str) -> str:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def test_a_registered_source_works_although_python3_on_the_path_is_another(broker: Broker, tmp_path: Path) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    write_python(folder / "python3", "echo another Python >&2; exit 1")
    broker.create_topic("orders")
    broker.create_topic("copies")
    broker.send("orders", "one espresso")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK", "VIRTUAL"))}
    environment |= {"PATH": f"{folder}:/usr/bin:/bin", "JAVA_HOME": find_java_home(), "SPARK_LOCAL_IP": "127.0.0.1"}
    environment |= {"PYTHONPATH": str(PROJECT / "src")}
    command = [sys.executable, "-c", PROGRAM, broker.http, str(tmp_path / "checkpoint")]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "rows: [b'one espresso']" in done.stdout, done.stderr
    assert [record.body for record in broker.records("copies")] == [b"one espresso"], done.stderr


def test_a_python_without_this_package_is_reported_with_what_to_do(tmp_path: Path) -> None:
    bare = write_python(
        tmp_path / "python", "echo \"ModuleNotFoundError: No module named 'pyspark_trimq'\" >&2; exit 1"
    )
    with pytest.raises(Mistake) as raised:
        check_python(bare, is_chosen=True)
    assert str(raised.value) == (
        f"Spark's workers run {bare} (PYSPARK_PYTHON or spark.pyspark.python), which cannot run format('trimq') "
        f"(ModuleNotFoundError: No module named 'pyspark_trimq'): set PYSPARK_PYTHON={sys.executable} before the "
        "session starts, or pip install 'trimq[spark]' there"
    )
    silent = write_python(tmp_path / "silent", "exit 3")
    with pytest.raises(Mistake, match=r"PYSPARK_PYTHON is unset\), which .* \(exit code 3\)"):
        check_python(silent, is_chosen=False)


def test_a_python_of_another_version_is_reported(tmp_path: Path) -> None:
    older = write_python(tmp_path / "python", "echo 3.7")
    with pytest.raises(Mistake, match=r"a Python 3\.7, but the driver's is 3\."):
        check_python(older, is_chosen=True)


def test_a_python_that_can_run_the_source_is_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(PROJECT / "src"))
    check_python(sys.executable, is_chosen=True)
    check_python("/only/on/other/machines/python", is_chosen=True)


def session(python: str, master: str = "local[2]", **settings: str) -> Any:
    context = SimpleNamespace(pythonExec=python, master=master, getConf=lambda: settings)
    return SimpleNamespace(_sc=context)


def test_the_drivers_python_is_chosen_only_where_the_user_chose_none(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    local = session("python3")
    prepare_python(local)
    assert local._sc.pythonExec == find_worker_python()
    configured = session("python3", **{"spark.pyspark.python": sys.executable})
    prepare_python(configured)
    assert configured._sc.pythonExec == sys.executable
    bare = write_python(tmp_path / "python", "exit 1")
    with pytest.raises(Mistake, match="PYSPARK_PYTHON is unset"):
        prepare_python(session(bare, "spark://elsewhere:7077"))
    monkeypatch.setenv("PYSPARK_PYTHON", bare)
    with pytest.raises(Mistake, match="PYSPARK_PYTHON or spark"):
        prepare_python(session(bare))


def test_a_session_of_spark_connect_is_left_alone() -> None:
    prepare_python(SimpleNamespace())
