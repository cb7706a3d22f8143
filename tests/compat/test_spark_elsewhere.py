"""The Spark source and sink outside of the test's process: declarative pipelines, and Spark Connect."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from compat.cache import require

from pyspark_trimq.runtime.java import find_java_home
from trimq.testing import Broker

pytestmark = [pytest.mark.external, pytest.mark.timeout(300)]

PLAIN = """
import sys
from pyspark_trimq.session import make_session

spark = make_session("plain", "local[2]", {"spark.driver.extraJavaOptions": sys.argv[2]})
rows = spark.read.format("trimq").option("bootstrap", sys.argv[1]).option("subscribe", "orders").load()
print("rows:", rows.count(), "on", spark.sparkContext._jvm.java.lang.System.getProperty("java.version"), flush=True)
"""

PROJECT = Path(__file__).parent.parent.parent
TEMPLATE = PROJECT / "examples" / "declarative_pipeline"
MINUTE_MS = 60_000
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xss4m"

CONNECTED = """
import sys
from pyspark_trimq.session import make_session

spark = make_session("connected", "local[2]", {"spark.driver.extraJavaOptions": sys.argv[2]}, connect=True)
assert "connect" in type(spark).__module__, type(spark)
rows = spark.read.format("trimq").option("bootstrap", sys.argv[1]).option("subscribe", "orders").load()
rows.select("key", "value").write.format("trimq").option("bootstrap", sys.argv[1]).option("topic", "order-copies") \\
    .mode("append").save()
print("rows:", rows.count(), flush=True)
"""

STREAMED = """
import sys
from pathlib import Path
from pyspark_trimq.pipelines import PipelineContext, aggregate, archive, dedupe
from pyspark_trimq.session import make_session

settings = {"spark.driver.extraJavaOptions": sys.argv[2], "spark.sql.shuffle.partitions": "1"}
spark = make_session("connected", "local[2]", settings, connect=True)
where = Path.cwd()
rows = spark.readStream.format("trimq").option("bootstrap", sys.argv[1]).option("subscribe", "orders") \\
    .option("startingOffsets", "earliest").load().select("key", "value")
copied = rows.writeStream.format("trimq").option("bootstrap", sys.argv[1]).option("topic", "order-copies") \\
    .option("checkpointLocation", str(where / "copied")).trigger(availableNow=True).start()
assert copied.awaitTermination(120) and copied.exception() is None

def context(name):
    return PipelineContext(sys.argv[1], spark=spark, show=False, rows_per_batch=4, checkpoint=where / name)

kept = archive(["orders"], lake=where / "lake", context=context("archive"))
print("archive:", kept.figures["rows archived"], kept.figures["batches"], kept.table("Topics")[0]["rows archived"])
print("dedupe:", dedupe(["orders"], to="once", by="key", context=context("dedupe")).figures["written"])
(where / "counts.toml").write_text(
    'to = "counts"\\nwindow = "1 minute"\\nselect = ["count(*) AS n"]\\n'
    '[from]\\ntopic = "orders"\\nformat = "text"\\nlate = "1 second"\\n'
)
counts = aggregate(where / "counts.toml", context=context("counts"))
read, written = (sum(getattr(batch, name) for batch in counts.batches) for name in ("rows", "written"))
print("aggregate:", read, written, flush=True)
"""


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        broker.create_topic("orders", partitions=2)
        broker.create_topic("order-copies")
        for index in range(6):
            broker.send(
                "orders", f"order {index}", f"customer {index % 3}", partition=index % 2, timestamp_ms=MINUTE_MS * index
            )
        yield broker


def run(command: list[str], folder: Path, **more: str) -> str:
    environment = os.environ | {
        "JAVA_HOME": find_java_home(),
        **more,
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYTHONPATH": str(PROJECT / "src"),
    }
    done = subprocess.run(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def copies(broker: Broker) -> list[bytes | None]:
    return sorted((record.body for record in broker.records("order-copies")), key=lambda body: body or b"")


def test_a_declarative_pipeline_reads_and_writes_topics(broker: Broker, tmp_path: Path) -> None:
    require("java")
    folder = tmp_path / "project"
    shutil.copytree(TEMPLATE, folder)
    spec = folder / "spark-pipeline.yml"
    text = spec.read_text().replace("file:///tmp/orders-from-trimq", f"file://{tmp_path}/storage")
    spec.write_text(text.replace("http://127.0.0.1:8180", broker.http))
    command = [str(Path(sys.executable).with_name("spark-pipelines")), "run", "--spec", str(spec)]
    output = run(
        [*command, "--conf", f"spark.driver.extraJavaOptions={QUICK}", "--conf", "spark.ui.enabled=false"], folder
    )
    assert copies(broker) == [b"order %d" % index for index in range(6)], output


def test_spark_connect_reads_and_writes_topics(broker: Broker, tmp_path: Path) -> None:
    require("java")
    output = run([sys.executable, "-c", CONNECTED, broker.http, QUICK], tmp_path)
    assert "rows: 6\n" in output
    assert copies(broker) == [b"order %d" % index for index in range(6)]


def test_streams_and_pipelines_run_through_spark_connect(broker: Broker, tmp_path: Path) -> None:
    require("java")
    output = run([sys.executable, "-c", STREAMED, broker.http, QUICK], tmp_path)
    assert copies(broker) == [b"order %d" % index for index in range(6)]
    assert "archive: 6 2 6\n" in output, "batches written by another process were not counted"
    assert "dedupe: 3\n" in output
    assert len(broker.records("once", 0)) + len(broker.records("once", 1)) == 3
    assert f"aggregate: 6 {len(broker.records('counts'))}\n" in output


def test_the_java_from_pypi_is_enough(broker: Broker, tmp_path: Path) -> None:
    """On a machine without Java: Spark's scripts still need a shell and its tools."""
    tools = tmp_path / "bin"
    tools.mkdir()
    for folder in ("/usr/bin", "/bin"):
        for tool in Path(folder).iterdir():
            if not tool.name.startswith("java") and not (tools / tool.name).is_symlink():
                (tools / tool.name).symlink_to(tool)
    output = run([sys.executable, "-c", PLAIN, broker.http, QUICK], tmp_path, JAVA_HOME="", PATH=str(tools))
    assert "rows: 6 on 21." in output
