"""Marks the tests that drive foreign clients, and gives each test a broker with all protocols."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from trimq.testing import Broker


def pytest_itemcollected(item: pytest.Item) -> None:
    item.add_marker(pytest.mark.foreign_client)


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running
