"""`.ci/run` on a small project: only tests that drive foreign clients are retried."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).parent.parent

MAKEFILE = """
check:
	@true
audit:
	@echo "NOT AUDITED: the advisories of 1 of 2 packages could not be read"
	@echo "0 known vulnerabilities in 1 audited packages"
test:
	@.venv/bin/python -m pytest -m "not external" $(ARGS)
compat:
	@.venv/bin/python -m pytest -m external $(ARGS)
"""
SETTINGS = """
[pytest]
markers =
    external
    foreign_client
"""
PASSES = "@pytest.mark.external\ndef test_external(): pass\n\ndef test_ours(): pass\n"
FAILS = "assert False"
# Fails at the first try and passes at the second.
UNSTEADY = "tried = pathlib.Path(__file__).with_suffix('.tried'); was = tried.exists(); tried.touch(); assert was"
FOREIGN = "@pytest.mark.foreign_client\n"
EXTERNAL = "@pytest.mark.external\n"


def case(name: str, body: str, marks: str = "") -> str:
    return f"{marks}def test_{name}(): {body}\n\n"


def run(folder: Path, source: str) -> tuple[int, str]:
    """Exit code and output of `.ci/run` in a project with these tests and two that pass."""
    (folder / ".ci").mkdir()
    shutil.copy(PROJECT / ".ci" / "run", folder / ".ci")
    (folder / ".venv" / "bin").mkdir(parents=True)
    python = folder / ".venv" / "bin" / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    (folder / "Makefile").write_text(MAKEFILE)
    (folder / "pytest.ini").write_text(SETTINGS)
    (folder / "test_planted.py").write_text(f"import os, pathlib, pytest\n\n{PASSES}\n{source}")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS", "PYTEST"))}
    inherited["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # starts in half the time
    done = subprocess.run([folder / ".ci" / "run"], env=inherited, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def closing_line(output: str) -> str:
    return output.splitlines()[-1]


def test_suites_that_pass_are_counted_in_the_last_line(tmp_path: Path) -> None:
    code, output = run(tmp_path, "")
    assert code == 0
    assert "make test JOBS=2 ok" in closing_line(output)
    assert closing_line(output).count("(1 passed, 1 deselected)") == 2
    assert "advisories of 1 of 2 packages could not be read;0 known vulnerabilities" in closing_line(output)


@pytest.mark.parametrize("marks", ["", EXTERNAL], ids=["test", "compat"])
def test_a_test_of_our_own_has_no_second_try(tmp_path: Path, marks: str) -> None:
    code, output = run(tmp_path, case("unsteady", UNSTEADY, marks))
    assert code == 1
    assert "once more" not in output
    assert "(1 failed, 1 passed" in closing_line(output)


@pytest.mark.parametrize(
    ("marks", "suite"), [(FOREIGN, "make test"), (FOREIGN + EXTERNAL, "make compat")], ids=["test", "compat"]
)
def test_a_test_that_drives_a_foreign_client_has_one_and_is_named(tmp_path: Path, marks: str, suite: str) -> None:
    code, output = run(tmp_path, case("unsteady", UNSTEADY, marks))
    assert code == 0
    assert f"{suite} JOBS=2 ok, but only at the second try: test_planted.py::test_unsteady " in closing_line(output)
    assert "1 failed, 1 passed" in output


def test_it_has_no_third_one(tmp_path: Path) -> None:
    code, output = run(tmp_path, case("failing", FAILS, FOREIGN))
    assert code == 1
    assert output.count("once more") == 1


def test_nothing_is_repeated_where_a_test_of_our_own_failed_as_well(tmp_path: Path) -> None:
    code, output = run(tmp_path, case("failing", FAILS) + case("unsteady", UNSTEADY, FOREIGN))
    assert code == 1
    assert "once more" not in output


def test_a_failure_of_one_suite_does_not_keep_the_next_from_its_second_try(tmp_path: Path) -> None:
    code, output = run(tmp_path, case("failing", FAILS) + case("unsteady", UNSTEADY, FOREIGN + EXTERNAL))
    assert code == 1
    assert "make compat JOBS=2 ok, but only at the second try: test_planted.py::test_unsteady" in closing_line(output)


def test_many_failures_are_not_repeated(tmp_path: Path) -> None:
    code, output = run(tmp_path, "".join(case(f"failing_{n}", FAILS, FOREIGN) for n in range(4)))
    assert code == 1
    assert "once more" not in output


@pytest.mark.parametrize("end", ["os._exit(1)", "pytest.exit('planted', 3)"], ids=["ended", "interrupted"])
def test_a_run_that_did_not_reach_its_end_is_not_repeated(tmp_path: Path, end: str) -> None:
    """Also after the failure of a test that drives a foreign client: the results of the later tests are unknown."""
    code, output = run(tmp_path, case("unsteady", UNSTEADY, FOREIGN) + case("ending", end))
    assert code == 1
    assert "make test JOBS=2 FAILED" in closing_line(output)


def test_a_module_that_cannot_be_imported_is_not_repeated(tmp_path: Path) -> None:
    code, output = run(tmp_path, "import no_such_module\n")
    assert code == 1
    assert "once more" not in output
