"""Scenarios that every way of idempotent consumption passes, on any database."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from client.once.cases import LEASE_S, Paid, Spec, handle, make_guard, make_tables, open_database, pay, payments

from trimq.client import Retry
from trimq.client.once import Outcome

TESTS = Path(__file__).parents[2]
PATIENCE_S = 60


def handle_in_process(way: str, spec: Spec, point: str) -> int:
    """Returns the exit code of a process that handles the message and dies at the point."""
    done = subprocess.run(
        [sys.executable, "-m", "client.once.cases", way, json.dumps(dict(spec)), point],
        env={**os.environ, "PYTHONPATH": f"{TESTS}:{TESTS.parent / 'src'}"},
        timeout=PATIENCE_S,
        check=False,
    )
    return done.returncode


def handle_until_decided(way: str, spec: Spec) -> Outcome:
    """Delivers the message again and again, as a broker does."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return handle(way, spec)
        except Retry as retry:
            if time.monotonic() > deadline or (retry.after is not None and float(retry.after) > LEASE_S):  # type: ignore[arg-type]
                raise
            time.sleep(0.05)


def check_repeats(way: str, spec: Spec) -> None:
    make_tables(spec)
    assert handle(way, spec) is Outcome.DONE
    assert [handle(way, spec) for _ in range(3)] == [Outcome.REPEAT] * 3
    assert payments(spec) == 1


def check_failures(way: str, spec: Spec) -> None:
    make_tables(spec)
    database = open_database(spec)
    guard = make_guard(way, spec, database)
    guard.prepare()

    def fail(given: object) -> None:
        if way != "marks":
            pay(given)  # type: ignore[arg-type]
        raise ValueError("no money")

    with pytest.raises(ValueError, match="no money"):
        guard.attempt(Paid(), fail)
    guard.close()
    database.close()
    assert payments(spec) == 0
    assert handle(way, spec) is Outcome.DONE
    assert payments(spec) == 1


def check_rivals(way: str, spec: Spec) -> None:
    """Several consumers get the message at the same instant."""
    make_tables(spec)
    begin = threading.Barrier(4)
    outcomes: list[Outcome] = []

    def compete() -> None:
        begin.wait(PATIENCE_S)
        outcomes.append(handle_until_decided(way, spec))

    threads = [threading.Thread(target=compete) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert sorted(outcome.value for outcome in outcomes) == ["done", "repeat", "repeat", "repeat"]
    assert payments(spec) == 1


def check_death(way: str, spec: Spec, point: str) -> None:
    """Without a common transaction, marks in Redis repeat what was done before the mark."""
    make_tables(spec)
    assert handle_in_process(way, spec, point) == -9
    handle_until_decided(way, spec)
    assert handle(way, spec) is Outcome.REPEAT
    assert payments(spec) == (2 if way == "marks" and point in ("amid", "before mark") else 1)
