"""Packages that each target of the Makefile installs, from the output of `make --dry-run`."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

PROJECT = Path(__file__).parent.parent
SERVE = "exec .venv/bin/trimq serve --data-dir trimq-data"


def dry_run(checkout: Path, *targets: str) -> str:
    inherited = {
        name: value for name, value in os.environ.items() if not name.startswith(("ARGS", "JOBS", "MAKE", "MFLAGS"))
    }
    call = ["make", "--dry-run", *targets]
    return subprocess.run(call, cwd=checkout, env=inherited, capture_output=True, text=True, check=True).stdout


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The files that determine the installation, an hour old, and an environment with uv only."""
    shutil.copytree(PROJECT / "requirements", tmp_path / "requirements")
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(PROJECT / name, tmp_path)
    for path in tmp_path.rglob("*"):
        os.utime(path, (path.stat().st_atime, path.stat().st_mtime - 3600))
    make_stamp(tmp_path, "bin/uv", age_s=1800)
    return tmp_path


def make_stamp(checkout: Path, name: str, age_s: int) -> None:
    stamp = checkout / ".venv" / name
    stamp.parent.mkdir(parents=True, exist_ok=True)
    stamp.touch()
    os.utime(stamp, (stamp.stat().st_atime, stamp.stat().st_mtime - age_s))


def change(path: Path) -> None:
    os.utime(path)


def test_run_installs_the_packages_of_the_broker_and_nothing_else(checkout: Path) -> None:
    printed = dry_run(checkout, "run")
    assert "requirements/runtime.txt" in printed
    assert "requirements/dev.txt" not in printed
    assert printed.rstrip().endswith(SERVE)


def test_run_installs_nothing_a_second_time(checkout: Path) -> None:
    make_stamp(checkout, "serves", age_s=60)
    assert dry_run(checkout, "run").strip() == SERVE


def test_run_installs_again_when_the_pins_of_the_broker_have_changed(checkout: Path) -> None:
    make_stamp(checkout, "serves", age_s=60)
    change(checkout / "requirements" / "dev.txt")
    assert dry_run(checkout, "run").strip() == SERVE
    change(checkout / "requirements" / "runtime.txt")
    assert "requirements/runtime.txt" in dry_run(checkout, "run")


def test_run_leaves_the_development_packages_alone(checkout: Path) -> None:
    make_stamp(checkout, "ready", age_s=60)
    assert dry_run(checkout, "run").strip() == SERVE
    change(checkout / "requirements" / "dev.txt")
    assert "pip sync" in dry_run(checkout, "run")
    assert "requirements/runtime.txt" not in dry_run(checkout, "run")


def test_run_removes_nothing_that_a_target_before_it_installed(checkout: Path) -> None:
    _, _, after_check = dry_run(checkout, "check", "run").partition("requirements/runtime.txt")
    assert after_check
    assert "pip sync" not in after_check


@pytest.mark.parametrize(
    "target",
    [
        "test",
        "check",
        "compat",
        "bench",
        "bench-kafka",
        "bench-amqp",
        "bench-rocketmq",
        "bench-client",
        "bench-cross",
        "bench-spark",
        "fuzz",
        "audit",
        "example",
    ],
)
def test_the_other_targets_install_the_development_packages(checkout: Path, target: str) -> None:
    make_stamp(checkout, "serves", age_s=60)
    assert "requirements/dev.txt" in dry_run(checkout, target)
    make_stamp(checkout, "ready", age_s=60)
    assert "requirements/dev.txt" not in dry_run(checkout, target)
