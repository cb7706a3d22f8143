"""Progress of a running query is visible at the broker."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from pyspark_trimq.broker.client import StreamKey, open_broker_client
from pyspark_trimq.broker.login import Login
from pyspark_trimq.source.lag_reporter import LagReporter
from tools.users import make_users
from trimq.testing import Broker

PATIENCE_S = 60


def eventually(look: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not look():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def group_of(broker: Broker, group: str) -> Any:
    try:
        with urlopen(f"{broker.http}/api/groups/{group}", timeout=20) as answer:
            return json.loads(answer.read())
    except OSError:
        return None


def metrics(broker: Broker) -> str:
    with urlopen(f"{broker.http}/metrics", timeout=20) as answer:
        text: str = answer.read().decode()
        return text


@pytest.mark.parametrize("port", ["http", "kafka"])
def test_a_running_query_is_a_group_with_a_lag_which_stays_when_it_stops(
    spark: Any, broker: Broker, tmp_path: Path, port: str
) -> None:
    broker.create_topic("orders", partitions=2)
    for index in range(10):
        broker.send("orders", str(index), partition=index % 2)
    reader = spark.readStream.format("trimq").option("bootstrap", getattr(broker, port))
    rows = reader.option("subscribe", "orders").options(startingOffsets="earliest", maxOffsetsPerTrigger=4).load()
    may_go_on, turns = threading.Event(), iter([0, 1])

    def look(batch: Any, _: int) -> None:
        batch.collect()
        if next(turns, None) is not None:
            may_go_on.wait(PATIENCE_S)
            may_go_on.clear()

    query = rows.writeStream.foreachBatch(look).option("checkpointLocation", str(tmp_path)).start()
    group = f"spark-{query.id}"
    for lag in (10, 6):  # during the first batch, and the second
        eventually(partial(has_lag, broker, group, lag), f"the lag was never {lag}")
        assert f'trimq_group_lag{{group="{group}",topic="orders"}} {lag}.0' in metrics(broker)
        assert lag_on_command_line(broker, group) == lag
        may_go_on.set()
    eventually(partial(has_lag, broker, group, 0), "the group never got to the end")
    assert f'trimq_group_lag{{group="{group}",topic="orders"}} 0.0' in metrics(broker)
    assert lag_on_command_line(broker, group) == 0
    query.stop()
    eventually(lambda: is_stopped(broker, group), "the group is not marked as stopped")
    stopped = group_of(broker, group)
    assert [row["offset"] for row in stopped["cursors"]] == [5, 5]
    assert stopped["last_commit_ms"] > 0
    broker.send("orders", "unread", partition=0)
    assert f'trimq_group_lag{{group="{group}",topic="orders"}} 1.0' in metrics(broker)
    command = [sys.executable, "-m", "trimq.cli", "groups", "describe", group, "--http", broker.addresses["http"]]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert re.search(r"^last seen +[0-9-]{10} [0-9:]{8}, stopped$", text, re.MULTILINE)


def is_stopped(broker: Broker, group: str) -> bool:
    found = group_of(broker, group)
    return found is not None and {row.get("note") for row in found["cursors"]} == {"stopped"}


def test_a_query_that_keeps_no_group_deletes_it(spark: Any, broker: Broker, tmp_path: Path) -> None:
    broker.create_topic("orders")
    broker.send("orders", "one")
    options = {"bootstrap": broker.http, "subscribe": "orders", "startingOffsets": "earliest", "keepGroup": "false"}
    rows = spark.readStream.format("trimq").options(**options).load()
    query = rows.writeStream.format("noop").option("checkpointLocation", str(tmp_path)).start()
    group = f"spark-{query.id}"
    eventually(lambda: group_of(broker, group) is not None, "the query has no group")
    eventually(lambda: sum(row["lag"] for row in group_of(broker, group)["cursors"]) == 0, "it is not read")
    query.stop()
    eventually(lambda: group_of(broker, group) is None, "the group outlives the query")


def has_lag(broker: Broker, group: str, lag: int) -> bool:
    """True if the lag of both partitions together is `lag`."""
    found = group_of(broker, group)
    cursors = [] if found is None else found["cursors"]
    return len(cursors) == 2 and sum(cursor["lag"] for cursor in cursors) == lag


def lag_on_command_line(broker: Broker, group: str) -> int:
    """Returns the lag shown by the command line."""
    command = [sys.executable, "-m", "trimq.cli", "groups", "describe", group, "--http", broker.addresses["http"]]
    text = subprocess.run([*command, "--json"], capture_output=True, text=True, check=True).stdout
    return sum(cursor["lag"] for cursor in json.loads(text)["cursors"])


def test_a_user_without_the_right_to_report_a_lag_asks_only_once(broker: Broker) -> None:
    broker.create_topic("orders")
    make_users(broker.http, alice={"read": "^orders$"})
    with closing(open_broker_client(broker.http, "", is_committed=True, login=Login("alice", "alice's"))) as port:
        lag = LagReporter("planner")
        lag.planned()
        for offset in range(30):
            lag.report_progress(port, {StreamKey("orders", 0): offset})
        assert not lag.needs_group
    asked = re.findall(r"GET /api/groups -> \d+(?: +\((\d+) times\))?", "\n".join(broker.sightings()))
    assert sum(int(times or 1) for times in asked) == 1
