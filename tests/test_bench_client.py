"""Every figure of `make bench-client` is measured with tiny sizes, against an embedded broker, and has a client."""

from __future__ import annotations

import pytest

from bench import client, client_work
from trimq.testing import Broker


def test_each_figure_has_its_work() -> None:
    assert {*client.WORKS, "import", "idle"} == set(client_work.WORKS)


@pytest.mark.parametrize("key", [key for key in client.WORKS if key not in ("cpp", "cpp_oneway")])
def test_each_work_measures(key: str) -> None:
    with Broker() as broker:
        found = client_work.WORKS[key](broker.addresses, client.TINY)
    assert found["cpu_us"] > 0
    assert found["rate"] > 0


def test_memory_of_idle_queues_and_import_are_measured() -> None:
    with Broker() as broker:
        assert client_work.idle(broker.addresses, 8)["mb"] < client.IDLE_MB
    assert client_work.importing({}, 1)["ms"] >= 0
