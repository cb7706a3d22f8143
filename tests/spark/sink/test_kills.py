"""Drivers and workers are killed in every phase of a write: each row is written once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import closing, suppress
from pathlib import Path

import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

from pyspark_trimq.arrow.columns import arrow_schema
from pyspark_trimq.broker.client import OffsetRange, StreamKey
from pyspark_trimq.broker.kafka_client import KafkaBrokerClient
from trimq.testing import Broker

HERE = Path(__file__).parent
ROWS = 80
# Names of the deaths in `killed_driver`, which cannot be imported: tests are no package.
DRIVERS = ["0-0-half-driver", "1-1-committed-driver", "2-all-done-driver"]
WORKERS = [
    *("0-0-begin-worker", "0-1-half-worker", "1-0-rows-worker", "1-1-offsets-worker"),
    *("2-0-committed-worker", "2-1-committed-worker", "2-1-found-worker", "3-all-done-worker"),
]
# Just below the limit of faulthandler: on a busy machine Spark takes a minute to start.
PATIENCE_S = 290


def fill(broker: Broker, folder: Path) -> None:
    (folder / "deaths").mkdir()
    broker.create_topic("in", partitions=2)
    broker.create_topic("out")
    for index in range(ROWS):
        broker.send("in", str(index), partition=index % 2)


def run(broker: Broker, folder: Path, of: str) -> tuple[int, str]:
    """Returns the exit code and the output of the driver."""
    driver = subprocess.Popen(
        [sys.executable, "-c", "import killed_driver; killed_driver.main()", broker.http, str(folder), of],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), *filter(None, sys.path)])},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    with driver:  # closes its pipe in any case
        try:
            output, _ = driver.communicate()
            return driver.returncode, output
        finally:
            with suppress(ProcessLookupError):
                os.killpg(driver.pid, signal.SIGKILL)


def committed(broker: Broker, topic: str) -> list[bytes]:
    schema = arrow_schema(StructType([StructField("value", BinaryType())]))
    with closing(KafkaBrokerClient(broker.kafka, is_committed=True)) as port:
        ends = port.ends(topic)[0]
        batches = port.read(OffsetRange(StreamKey(topic, 0), ends.start, ends.end), schema, True)
        return [value for batch in batches for value in batch.column("value").to_pylist()]


def died(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "deaths").iterdir())


@pytest.mark.timeout(PATIENCE_S)
def test_three_kills_of_the_driver_leave_each_row_once(broker: Broker, tmp_path: Path) -> None:
    fill(broker, tmp_path)
    for count in range(len(DRIVERS)):
        code, output = run(broker, tmp_path, "drivers")
        assert (code, died(tmp_path)) == (-signal.SIGKILL, DRIVERS[: count + 1]), output
        assert len(committed(broker, "out")) < ROWS
    code, output = run(broker, tmp_path, "drivers")
    assert (code, died(tmp_path)) == (0, DRIVERS), output
    assert sorted(map(int, committed(broker, "out"))) == list(range(ROWS))


@pytest.mark.timeout(PATIENCE_S)
def test_eight_kills_of_workers_leave_each_row_once(broker: Broker, tmp_path: Path) -> None:
    fill(broker, tmp_path)
    code, output = run(broker, tmp_path, "workers")
    assert (code, died(tmp_path)) == (0, WORKERS), output
    assert sorted(map(int, committed(broker, "out"))) == list(range(ROWS))
