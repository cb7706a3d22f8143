"""Pytest plugin: fixtures for an embedded broker, and its recorded events in the report of a failing test. Imports
nothing of the broker until a test uses a fixture, so that it costs nothing if it is installed but unused."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from trimq.testing.broker import Broker

_SIGHTINGS = "trimq.testing.sightings"


@pytest.fixture
def trimq_broker() -> Iterator[Broker]:
    """Embedded broker in memory with default settings."""
    from trimq.testing.broker import Broker

    with Broker() as broker:
        yield broker


@pytest.fixture
def trimq_broker_factory() -> Iterator[Callable[..., Broker]]:
    """Function that starts a broker with the given settings; may be called several times. All are closed at the end."""
    from trimq.testing.broker import Broker

    with ExitStack() as stack:
        yield lambda **arguments: stack.enter_context(Broker(**arguments))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    if sightings := sys.modules.get(_SIGHTINGS):
        sightings.forget_ended()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    sightings = sys.modules.get(_SIGHTINGS)
    if report.failed and sightings is not None:
        report.sections.extend(sightings.reports())
    return report
