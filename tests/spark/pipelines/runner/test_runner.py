"""`trimq pipeline … --continuous` on the command line: processes new messages, stops cleanly on a signal, and
resumes."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pandas
import pytest

from tools.users import make_users
from trimq.testing import Broker

PATIENCE_S = 240
TUNED = "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xss4m"
RIGHTS = {"configure": "^spark-", "write": "^spark-", "read": "^(orders|spark-.*)$"}


@contextmanager
def running(broker: Broker, lake: Path, *more: str) -> Iterator[subprocess.Popen[str]]:
    words = ["pipeline", "archive", "orders", "--lake", str(lake), "--continuous", "--every", "200 ms"]
    where = ["--bootstrap", broker.http, "--master", "local[1]", "--conf", TUNED, "--user", "alice"]
    process = subprocess.Popen(
        [sys.executable, "-m", "trimq.cli", *words, *where, *more],
        env={**os.environ, "TRIMQ_PASSWORD": "alice's"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def rows_in(lake: Path) -> int:
    """Returns the number of rows in the manifest."""
    commits = [json.loads(path.read_text()) for path in (lake / "_trimq" / "manifest").glob("0*.json")]
    return sum(entry["rows"] for commit in commits for entry in commit["add"])


def wait_until(look: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not look():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    output, complaints = process.communicate(timeout=PATIENCE_S)
    return process.returncode, output, complaints


@pytest.mark.timeout(900)
def test_a_continuous_archive_takes_new_messages_and_stops_cleanly_on_either_signal(tmp_path: Path) -> None:
    lake, report = tmp_path / "lake", tmp_path / "report.html"
    with Broker() as broker:
        broker.create_topic("orders")
        make_users(broker.http, alice=RIGHTS)
        broker.send("orders", "0")
        with running(broker, lake, "--compact-from", "0", "--report", str(report)) as process:
            wait_until(lambda: rows_in(lake) == 1, process)
            for number in (1, 2):
                broker.send("orders", str(number))
            wait_until(lambda: rows_in(lake) == 3, process)
            os.killpg(process.pid, signal.SIGINT)  # like Ctrl-C: the whole process group gets the signal
            code, output, complaints = ended(process)
        assert (code, complaints) == (0, ""), output
        assert re.search(r"rows in the lake +3\n", output)
        assert "<svg" in report.read_text()
        broker.send("orders", "3")
        with running(broker, lake, "--compact-from", "0", "--json", str(tmp_path / "output.json")) as process:
            wait_until(lambda: rows_in(lake) == 4, process)
            process.send_signal(signal.SIGTERM)  # like a supervisor
            code, output, complaints = ended(process)
        assert (code, complaints) == (0, ""), output
    figures = json.loads((tmp_path / "output.json").read_text())["figures"]
    assert (figures["rows archived"], figures["rows in the lake"]) == (1, 4)
    assert [bytes(value) for value in pandas.read_parquet(lake).sort_values("offset")["value"]] == [
        b"0",
        b"1",
        b"2",
        b"3",
    ]
