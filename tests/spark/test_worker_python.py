"""Which Python, and which PySpark, Spark's workers run on."""

from __future__ import annotations

import json
import os
import py_compile
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.util import cache_from_source
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pyspark_trimq.mistakes import Mistake
from pyspark_trimq.worker_python import find_worker_python, is_kept_compiled, make_launcher, name_of


def test_the_launcher_drops_what_spark_puts_in_front_and_passes_on_the_rest(tmp_path: Path) -> None:
    python = tmp_path / "a real" / "python"
    python.parent.mkdir()
    python.write_text('#!/bin/sh\nprintf \'%s\\n\' "$PYTHONPATH" "$@"\n')
    python.chmod(0o700)
    home = tmp_path / "py spark"
    launcher = make_launcher(home, str(python), tmp_path / "made")
    own = [f"{home}/python/lib/pyspark.zip", f"{home}/python/lib/py4j-1-src.zip", f"{home}/jars/core.jar"]
    words = ["-m", "pyspark.other", "", "$HOME a"]
    environment = {"PATH": os.defpath, "PYTHONPATH": ":".join([*own, "/a *", "b"])}
    told = subprocess.run([launcher, *words], env=environment, capture_output=True, text=True, check=True).stdout
    assert told.split("\n")[:-1] == ["/a *:b", *words]
    assert make_launcher(home, str(python), tmp_path / "made") == launcher
    words = ["-m", "pyspark.daemon", "pyspark.worker"]
    told = subprocess.run([launcher, *words], env=environment, capture_output=True, text=True, check=True).stdout
    assert told.split("\n")[1:-1] == ["-m", "pyspark_trimq.worker_daemon", "pyspark.worker"]


def _told_by_launcher(tmp_path: Path, is_kept: bool, environment: dict[str, str]) -> list[str]:
    python = tmp_path / "python"
    names = ["PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX", "OMP_NUM_THREADS"]
    python.write_text("#!/bin/sh\n" + "".join(f'echo "${{{name}-unset}}"\n' for name in names))
    python.chmod(0o700)
    folder = tmp_path / "a folder"
    launcher = make_launcher(tmp_path / "spark", str(python), folder, None if is_kept else folder / "compiled")
    environment = {"PATH": os.defpath, **environment}
    told = subprocess.run([launcher, "-m", "any"], env=environment, capture_output=True, text=True, check=True)
    return told.stdout.splitlines()


def test_what_is_compiled_is_kept_by_the_launcher_where_nobody_else_does(tmp_path: Path) -> None:
    nowhere = {"PYTHONDONTWRITEBYTECODE": "1"}
    assert _told_by_launcher(tmp_path, True, nowhere)[:2] == ["1", "unset"]
    assert _told_by_launcher(tmp_path, False, nowhere)[:2] == ["unset", str(tmp_path / "a folder" / "compiled")]
    assert _told_by_launcher(tmp_path, False, {"PYTHONPYCACHEPREFIX": "/mine"})[:2] == ["unset", "/mine"]


def test_what_was_compiled_of_another_installation_is_not_taken(tmp_path: Path) -> None:
    """Files of one size and time, as those of an image that is built anew, are no proof that they are the same."""
    (tmp_path / "one").mkdir()
    first = name_of(tmp_path / "one")
    assert name_of(tmp_path / "one") == first
    (tmp_path / "one").rename(tmp_path / "before")
    (tmp_path / "one").mkdir()
    assert name_of(tmp_path / "one") != first


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


def test_numpy_has_one_thread_unless_more_are_asked_for(tmp_path: Path) -> None:
    assert _told_by_launcher(tmp_path, True, {})[2] == "1"
    assert _told_by_launcher(tmp_path, True, {"OMP_NUM_THREADS": "4"})[2] == "4"


def test_a_module_is_kept_if_it_is_there_or_can_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "pycache_prefix", None)
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    module = tmp_path / "module.py"
    assert is_kept_compiled(module)
    assert not is_kept_compiled(tmp_path / "no such folder" / "module.py")
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    assert not is_kept_compiled(module)
    module.write_text("")
    py_compile.compile(str(module))
    assert is_kept_compiled(module)


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


def test_what_plans_a_stream_is_not_compiled_each_time_and_has_one_thread(spark: Any, tmp_path: Path) -> None:
    from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

    class Reader(DataSourceStreamReader):
        def initialOffset(self) -> dict[str, Any]:
            return {}

        def latestOffset(self, start: Any, limit: Any) -> dict[str, Any]:
            import numpy

            return {
                "is kept": Path(cache_from_source(numpy.__file__)).exists(),
                "threads": os.environ["OMP_NUM_THREADS"],
            }

        def partitions(self, start: Any, end: Any) -> list[InputPartition]:
            return [InputPartition(0)]

        def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
            yield (1,)

    class Telling(DataSource):
        @classmethod
        def name(cls) -> str:
            return "telling"

        def streamReader(self, schema: Any) -> Reader:
            return Reader()

    spark.dataSource.register(Telling)
    rows = spark.readStream.format("telling").schema("number int").load()
    writer = rows.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.trigger(once=True).start()
    query.awaitTermination()
    assert query.exception() is None
    assert json.loads(query.lastProgress.sources[0].endOffset) == {"is kept": True, "threads": "1"}
