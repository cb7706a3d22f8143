"""One Spark session for all tests of this folder, in one process: a JVM takes seconds to start."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pyspark_trimq.session import make_session
from trimq.testing import Broker

HERE = Path(__file__).parent

# Compiles less and collects garbage in one thread: a short run is twice as fast.
_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xss4m"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.xdist_group("spark"))
            item.add_marker(pytest.mark.timeout(180))


def pytest_itemcollected(item: pytest.Item) -> None:
    """Marks tests with the shared session, which is a JVM with its own threads and connections. Other tests are not
    repeated."""
    if "spark" in getattr(item, "fixturenames", ()):
        item.add_marker(pytest.mark.foreign_client)


@pytest.fixture(autouse=True)
def _nothing_leaks() -> Iterator[None]:
    """Replaces the leak check of the other tests: the gateway to the JVM opens connections and threads on demand and
    keeps them as long as the session. Objects that PySpark drops unclosed are collected here, or a later test would
    fail for them."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Iterator[Any]:
    # PySpark's threads drop connections unclosed at any time from now on; leaks of our own code are
    # found by `_nothing_leaks` of tests/conftest.py.
    pytestconfig.addinivalue_line("filterwarnings", "ignore:unclosed:ResourceWarning")
    folder = tmp_path_factory.mktemp("spark")
    session = make_session(
        "tests",
        "local[2]",
        {
            "spark.driver.extraJavaOptions": _JVM,
            "spark.driver.memory": "1g",
            "spark.sql.shuffle.partitions": "1",
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
            "spark.local.dir": str(folder / "local"),
            "spark.log.level": "OFF",
            "spark.sql.streaming.pollingDelay": "20ms",
        },
    )
    yield session
    session.stop()


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker
