"""The pytest plugin: fixtures that give a broker, and what brokers saw in the report of a failing test. Imports nothing
of the broker until a test asks for one, so that it costs nothing where it is installed and not used."""

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
    """A broker in this process, in memory, with its default settings."""
    from trimq.testing.broker import Broker

    with Broker() as broker:
        yield broker


@pytest.fixture
def trimq_broker_factory() -> Iterator[Callable[..., Broker]]:
    """Starts a broker with the settings that it is called with, as often as wanted; all are closed at the end."""
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
