"""A pipeline on a Spark cluster: a standalone master and a worker, from the installed PySpark."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark
import pytest
from compat.cache import require

from pyspark_trimq.runtime.java import find_java_home
from trimq.testing import Broker

pytestmark = [pytest.mark.external, pytest.mark.timeout(400)]

PATIENCE_S = 180
PROJECT = Path(__file__).parent.parent.parent
SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xss4m"


def environment() -> dict[str, str]:
    return {
        **os.environ,
        "JAVA_HOME": find_java_home(),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": QUICK,
    }


@contextmanager
def daemon(log: Path, sign: str, name: str, *words: str) -> Iterator[str]:
    """Runs a Spark daemon. Returns the first group of the pattern `sign` in its log."""
    command = [str(SPARK_CLASS), f"org.apache.spark.deploy.{name}", "--host", "127.0.0.1", "--webui-port", "0", *words]
    with log.open("w") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=environment())
    try:
        deadline = time.monotonic() + PATIENCE_S
        while (found := re.search(sign, log.read_text())) is None:
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.1)
        yield found[1]
    finally:
        process.terminate()
        process.wait(PATIENCE_S)


def test_a_pipeline_reads_and_writes_topics_from_the_workers_of_a_cluster(tmp_path: Path) -> None:
    require("java")
    with ExitStack() as stack:
        broker = stack.enter_context(Broker())
        broker.create_topic("orders", partitions=2)
        for number in range(8):
            broker.send("orders", f"order {number}", f"customer {number % 3}", partition=number % 2)
        master = stack.enter_context(
            daemon(tmp_path / "master.log", r"Starting Spark master at (spark://\S+)", "master.Master", "--port", "0")
        )
        own = ("--cores", "2", "--memory", "1g", "--work-dir", str(tmp_path / "work"), master)
        stack.enter_context(
            daemon(tmp_path / "worker.log", r"(Successfully registered) with master", "worker.Worker", *own)
        )
        words = ["pipeline", "dedupe", "orders", "--to", "once", "--by", "key", "--bootstrap", broker.http]
        conf = {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.extraJavaOptions": QUICK,
            "spark.executor.extraJavaOptions": QUICK,
            "spark.executor.memory": "512m",
            "spark.sql.shuffle.partitions": "2",
            "spark.pyspark.python": sys.executable,
        }
        settings = [word for name, value in conf.items() for word in ("--conf", f"{name}={value}")]
        done = subprocess.run(
            [sys.executable, "-m", "trimq.cli", *words, *settings, "--master", master],
            cwd=tmp_path,
            env=environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert re.search(r"written +3\n", done.stdout)
        keys = [record.key for partition in (0, 1) for record in broker.records("once", partition)]
        assert sorted(key or b"" for key in keys) == [b"customer 0", b"customer 1", b"customer 2"]
        assert list((tmp_path / "work").glob("app-*/0")), "no executor of the worker ran it"
