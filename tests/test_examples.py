"""Every example runs and passes its own checks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from examples.run import examples

PROJECT = Path(__file__).parent.parent


def run(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "examples.run", *words]
    return subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)


# Built with Maven, which downloads libraries.
EXTERNAL = {"e27_spring_boot"}


@pytest.mark.foreign_client
@pytest.mark.timeout(300)  # some start a JVM
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.external if name in EXTERNAL else ()) for name in examples()]
)
def test_an_example_runs(name: str) -> None:
    done = run(name)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout


@pytest.mark.parametrize("name", examples())
def test_an_example_is_in_the_list_of_examples(name: str) -> None:
    assert f"[{name}]({name}.py)" in (PROJECT / "examples" / "README.md").read_text()


def test_an_unknown_example_gets_the_list() -> None:
    done = run("e00_nothing")
    assert done.returncode == 2
    assert "e08_send_and_wait" in done.stderr
