"""Creates Spark sessions with the settings that the source, the sink and the pipelines need. Settings of the caller
win."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark_trimq.runtime.java import find_java_home
from pyspark_trimq.runtime.worker_python import find_worker_python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEFAULTS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.sql.session.timeZone": "UTC",
    # Upper bound of an Arrow batch that Spark passes to Python. Without it, 1,000 large rows exceed Arrow's limits.
    "spark.sql.execution.arrow.maxBytesPerBatch": str(64 << 20),
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # Interval at which an idle query asks the broker for new end offsets.
    "spark.sql.streaming.pollingDelay": "100ms",
}

# Only for local masters, where driver and workers run on one machine.
LOCAL = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "4",
    # Over TCP, each Python task waits 40 ms for a delayed TCP acknowledgement.
    "spark.python.unix.domain.socket.enabled": str(hasattr(socket, "AF_UNIX")).lower(),
    "spark.python.daemon.module": "pyspark_trimq.worker_daemon",
}


def make_session(
    name: str = "trimq", master: str | None = None, conf: Mapping[str, str] | None = None, connect: bool = False
) -> SparkSession:
    """Returns a session with `format("trimq")` registered. `master` defaults to `local[*]`; `sc://host` connects to a
    Spark Connect server. `connect` starts a local Spark Connect server with that master and connects to it."""
    from pyspark.sql import SparkSession

    from pyspark_trimq import register

    master = master or "local[*]"
    is_local = master.startswith("local")
    is_remote = master.startswith("sc://")
    if not is_remote:
        os.environ["JAVA_HOME"] = find_java_home()
    if conf and "spark.pyspark.python" in conf:
        os.environ["PYSPARK_PYTHON"] = conf["spark.pyspark.python"]  # only spark-submit reads the setting
    if is_local:
        # Python workers must run the interpreter of this process; sockets stay on loopback.
        if "PYSPARK_PYTHON" not in os.environ:
            os.environ["PYSPARK_PYTHON"] = find_worker_python()
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.appName(name)
    builder = builder.remote(master) if connect or is_remote else builder.master(master)
    for key, value in _settings(is_local, is_remote, conf or {}).items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    register(session)
    return session


def _settings(is_local: bool, is_remote: bool, given: Mapping[str, str]) -> dict[str, str]:
    if is_remote:
        return dict(given)
    return {**DEFAULTS, **(LOCAL if is_local else {}), **given}
