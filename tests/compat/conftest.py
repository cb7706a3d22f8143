"""Marks the tests that drive foreign clients, and enables assertion rewriting for the judges."""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite(
    "compat.judges", "compat.administration", "compat.queue_judges", "compat.rocketmq_judges"
)

# Modules of this folder without a foreign client.
OURS = {"test_client_versions.py", "test_kafka_tools.py", "test_rocketmq_remoting.py"}


def pytest_itemcollected(item: pytest.Item) -> None:
    if item.path.name not in OURS:
        item.add_marker(pytest.mark.foreign_client)
