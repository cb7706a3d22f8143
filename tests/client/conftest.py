"""Fixtures of the client's tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from trimq.testing import Broker


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as found:
        yield found
