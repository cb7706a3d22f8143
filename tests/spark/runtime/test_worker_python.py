"""Selection of the Python and PySpark for Spark's workers."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pyspark_trimq.mistakes import Mistake
from pyspark_trimq.runtime.worker_python import find_worker_python, make_launcher


def test_the_launcher_drops_paths_of_spark_and_passes_on_the_rest(tmp_path: Path) -> None:
    python = tmp_path / "a real" / "python"
    python.parent.mkdir()
    python.write_text('#!/bin/sh\nprintf \'%s\\n\' "$PYTHONPATH" "$@"\n')
    python.chmod(0o700)
    home = tmp_path / "py spark"
    launcher = make_launcher(home, str(python), tmp_path / "made")
    own = [f"{home}/python/lib/pyspark.zip", f"{home}/python/lib/py4j-1-src.zip", f"{home}/jars/core.jar"]
    words = ["-m", "pyspark.other", "", "$HOME a"]
    environment = {"PATH": os.defpath, "PYTHONPATH": ":".join([*own, "/a *", "b"])}
    output = subprocess.run([launcher, *words], env=environment, capture_output=True, text=True, check=True).stdout
    assert output.split("\n")[:-1] == ["/a *:b", *words]
    assert make_launcher(home, str(python), tmp_path / "made") == launcher
    words = ["-m", "pyspark.daemon", "pyspark.worker"]
    output = subprocess.run([launcher, *words], env=environment, capture_output=True, text=True, check=True).stdout
    assert output.split("\n")[1:-1] == ["-m", "pyspark_trimq.worker_daemon", "pyspark.worker"]


@pytest.mark.parametrize("asked", ["", "4"])
def test_numpy_has_one_thread_unless_more_are_asked_for(tmp_path: Path, asked: str) -> None:
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\necho "$OMP_NUM_THREADS"\n')
    python.chmod(0o700)
    launcher = make_launcher(tmp_path / "spark", str(python), tmp_path / "made")
    environment = {"PATH": os.defpath, "OMP_NUM_THREADS": asked}
    output = subprocess.run([launcher, "-m", "any"], env=environment, capture_output=True, text=True, check=True)
    assert output.stdout == f"{asked or 1}\n"


def _open_to_all(folder: Path) -> None:
    folder.chmod(0o777)


def _make_link(folder: Path) -> None:
    folder.rename(folder.with_name("elsewhere"))
    folder.symlink_to(folder.with_name("elsewhere"))


@pytest.mark.parametrize("spoil", [_open_to_all, _make_link])
def test_a_folder_that_others_can_write_to_is_refused(tmp_path: Path, spoil: Callable[[Path], None]) -> None:
    folder = tmp_path / "made"
    folder.mkdir(mode=0o700)
    spoil(folder)
    with pytest.raises(Mistake, match="only its owner"):
        make_launcher(tmp_path / "spark", "python", folder)


def test_another_spark_keeps_its_own_pyspark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_HOME", "/opt/spark")
    assert find_worker_python() == sys.executable


def test_workers_take_the_pyspark_that_is_installed(spark: Any) -> None:
    def places(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyspark

        list(batches)
        yield pa.RecordBatch.from_pydict({"place": [pyspark.__file__]})

    (found,) = spark.range(1).coalesce(1).mapInArrow(places, "place string").collect()
    import pyspark

    assert found.place == pyspark.__file__
