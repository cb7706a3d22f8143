"""The source and the sink where Spark is not in the same process: declarative pipelines, and Spark Connect."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from compat.cache import require

from pyspark_trimq.java import find_java_home
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


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        broker.create_topic("orders", partitions=2)
        broker.create_topic("order-copies")
        for index in range(6):
            broker.send("orders", f"order {index}", f"customer {index % 3}", partition=index % 2)
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
    told = run(
        [*command, "--conf", f"spark.driver.extraJavaOptions={QUICK}", "--conf", "spark.ui.enabled=false"], folder
    )
    assert copies(broker) == [b"order %d" % index for index in range(6)], told


def test_spark_connect_reads_and_writes_topics(broker: Broker, tmp_path: Path) -> None:
    require("java")
    told = run([sys.executable, "-c", CONNECTED, broker.http, QUICK], tmp_path)
    assert "rows: 6\n" in told
    assert copies(broker) == [b"order %d" % index for index in range(6)]


def test_the_java_from_pypi_is_enough(broker: Broker, tmp_path: Path) -> None:
    """On a machine that has none: Spark's own scripts still need a shell and its tools."""
    tools = tmp_path / "bin"
    tools.mkdir()
    for folder in ("/usr/bin", "/bin"):
        for tool in Path(folder).iterdir():
            if not tool.name.startswith("java") and not (tools / tool.name).is_symlink():
                (tools / tool.name).symlink_to(tool)
    told = run([sys.executable, "-c", PLAIN, broker.http, QUICK], tmp_path, JAVA_HOME="", PATH=str(tools))
    assert "rows: 6 on 21." in told
