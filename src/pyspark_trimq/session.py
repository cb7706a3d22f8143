"""A Spark session with the settings that the source, the sink and the pipelines want; whatever is given wins."""

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
    # Spark's own: rows go to Python in pieces of this size. Without it a thousand large ones are more than Arrow holds.
    "spark.sql.execution.arrow.maxBytesPerBatch": str(64 << 20),
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # An idle query asks the broker for its ends at this pace.
    "spark.sql.streaming.pollingDelay": "100ms",
}

# Where no other machine takes part.
LOCAL = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "4",
    # Over TCP each task that runs in Python waits 40 ms for an acknowledgement that is held back.
    "spark.python.unix.domain.socket.enabled": str(hasattr(socket, "AF_UNIX")).lower(),
    "spark.python.daemon.module": "pyspark_trimq.worker_daemon",
}


def make_session(
    name: str = "trimq", master: str | None = None, conf: Mapping[str, str] | None = None, connect: bool = False
) -> SparkSession:
    """`master`: `local[*]` unless it is said; `sc://host` is a Spark Connect server. `connect`: through such a
    server, started here, with that master."""
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
        # Its Python workers are to be this very Python, and its sockets on loopback.
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
