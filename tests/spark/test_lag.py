"""How far a query is can be seen at the broker, while it runs."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

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
def test_a_running_query_is_a_group_with_its_lag_which_goes_when_it_stops(
    spark: Any, broker: Broker, tmp_path: Path, port: str
) -> None:
    broker.create_topic("orders", partitions=2)
    for index in range(10):
        broker.send("orders", str(index), partition=index % 2)
    reader = spark.readStream.format("trimq").option("bootstrap", getattr(broker, port))
    rows = reader.option("subscribe", "orders").option("startingOffsets", "earliest").load()
    query = rows.writeStream.format("noop").option("checkpointLocation", str(tmp_path)).start()
    group = f"spark-{query.id}"

    def has_read_all() -> bool:
        found = group_of(broker, group)
        return found is not None and [cursor["offset"] for cursor in found["cursors"]] == [5, 5]

    eventually(has_read_all, "the group never got to the end")
    assert [cursor["lag"] for cursor in group_of(broker, group)["cursors"]] == [0, 0]
    assert f'trimq_group_lag{{group="{group}",topic="orders"}} 0.0' in metrics(broker)
    command = [sys.executable, "-m", "trimq.cli", "groups", "describe", group, "--http", broker.addresses["http"]]
    assert "orders" in subprocess.run(command, capture_output=True, text=True, check=True).stdout
    query.stop()
    eventually(lambda: group_of(broker, group) is None, "the group outlives the query")
