"""Checks for every test: no leaks, no skips where everything is required, seeded random numbers."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import sys
import threading
import time
import warnings
import weakref
from collections.abc import Generator, Iterable, Iterator

import hypothesis
import pytest

REQUIRE_ALL = os.environ.get("TRIMQ_REQUIRE_ALL") == "1"

_failed = pytest.StashKey[bool]()

hypothesis.settings.register_profile("trimq", deadline=None, print_blob=True)
hypothesis.settings.load_profile("trimq")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--seeds", type=int, default=300, metavar="N", help="how many seeds the simulation runs through")
    parser.addoption("--seed", type=int, default=None, metavar="N", help="the one seed that the simulation replays")
    # A peer closes its side of a connection, and a stopped thread ends, shortly after the test that caused it.
    parser.addini("leak_grace_s", "how long a test's sockets, threads and tasks may outlive it", default="20")


def pytest_collection_finish() -> None:
    _set_aside()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Prints the seed, without which a failure in random order cannot be repeated: `-q` hides the header with it."""
    if terminalreporter.stats.get("failed") or terminalreporter.stats.get("error"):
        seed = getattr(config.option, "randomly_seed", None)  # none with `-p no:randomly`
        terminalreporter.write_line(f"repeat this order with: --randomly-seed={seed}")


# --- no skips where everything is required ----------------------------------------------------------------------------


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if REQUIRE_ALL and (report.skipped or hasattr(report, "wasxfail")):
        report.longrepr = f"{_kind(report)} under TRIMQ_REQUIRE_ALL=1: {_reason(report)}"
        report.outcome = "failed"
        vars(report).pop("wasxfail", None)
    if report.failed:
        item.stash[_failed] = True
    return report


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    if REQUIRE_ALL and report.outcome == "skipped":
        report.longrepr = f"skipped under TRIMQ_REQUIRE_ALL=1: {_reason(report)}"
        report.outcome = "failed"
    return report


def _kind(report: pytest.TestReport) -> str:
    return "expected to fail" if hasattr(report, "wasxfail") else "skipped"


def _reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    return getattr(report, "wasxfail", None) or (
        report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    )


# --- no leaks ---------------------------------------------------------------------------------------------------------


class _Complaints(logging.Handler):
    """asyncio's log messages about dropped tasks and unretrieved exceptions."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


def _open_sockets() -> dict[str, str]:
    """Each socket of this process by its inode, with its descriptor."""
    sockets = {}
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{descriptor}")
        except FileNotFoundError:  # the listing's own descriptor
            continue
        if target.startswith("socket:"):
            sockets[target] = f"descriptor {descriptor} ({target})"
    return sockets


def _set_aside() -> None:
    """Exempts the objects that are alive now from the search. Otherwise each test would pay for all modules that
    earlier ones imported."""
    gc.collect()
    gc.freeze()


def _pending_tasks() -> list[asyncio.Task[object]]:
    """Tasks that were started since the last `_set_aside`."""
    return [found for found in gc.get_objects() if issubclass(type(found), asyncio.Task) and not found.done()]


class _Before:
    """Open resources before a test; `leaks` returns those opened since."""

    def __init__(self) -> None:
        _set_aside()
        self._sockets = set(_open_sockets())
        self._threads = weakref.WeakSet(threading.enumerate())

    def leaks(self) -> list[str]:
        sockets = [text for inode, text in _open_sockets().items() if inode not in self._sockets]
        threads = [thread.name for thread in threading.enumerate() if thread not in self._threads]
        tasks = [repr(task) for task in _pending_tasks()]
        return [*_named("socket", sockets), *_named("thread", threads), *_named("asyncio task", tasks)]


def _named(kind: str, found: Iterable[str]) -> list[str]:
    return [f"{kind} left open: {text}" for text in found]


def _lasting_leaks(before: _Before, grace_s: float) -> list[str]:
    deadline = time.monotonic() + grace_s
    while leaks := before.leaks():
        gc.collect()
        if time.monotonic() > deadline:
            return leaks
        time.sleep(0.01)
    return []


@pytest.fixture(autouse=True)
def _nothing_leaks(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fails a test that leaves sockets, threads or tasks open. Resources of fixtures with a wider scope are opened
    before."""
    if "pyspark" in sys.modules:
        # PySpark leaves the sockets of its results to the garbage collector, which must not blame the next test.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()
    complaints = _Complaints()
    before = _Before()
    logging.getLogger("asyncio").addHandler(complaints)
    yield
    try:
        if request.node.stash.get(_failed, False):
            return  # the traceback keeps the objects of the test alive
        # pytest holds the values of ended fixtures until after this check; a client that closes on deletion would count
        # as a leak.
        request.node.funcargs.clear()
        gc.collect()
        leaks = _lasting_leaks(before, float(request.config.getini("leak_grace_s")))
    finally:
        logging.getLogger("asyncio").removeHandler(complaints)
    if leaks or complaints.texts:
        pytest.fail("\n".join([*leaks, *complaints.texts]), pytrace=False)
