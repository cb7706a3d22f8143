"""Selection of the Java for Spark."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from pyspark_trimq.runtime.java import find_java_home, is_supported, make_launcher


@pytest.mark.parametrize(
    ("version", "is_fit"),
    [
        ("17.0.15", True),
        ("17.0.11", True),
        ("17.0.9", False),
        ("17", False),
        ("21", True),
        ("21.0.8", True),
        ("25.0.2", False),
        ("11.0.22", False),
        ("1.8.0_402", False),
        ("", False),
    ],
)
def test_a_version_is_supported_or_not(version: str, is_fit: bool) -> None:
    assert is_supported(version) is is_fit


def test_the_launcher_drops_one_flag_and_passes_on_the_rest(tmp_path: Path) -> None:
    real = tmp_path / "it's a real one"
    java = real / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\nprintf '%s\\n' \"$@\"\n")
    java.chmod(0o700)
    home = make_launcher(real, tmp_path / "made")
    words = ["-cp", "a b", "--add-modules=jdk.incubator.vector", "", "Main", "$HOME"]
    output = subprocess.run([home / "bin" / "java", *words], capture_output=True, text=True, check=True).stdout
    assert output.split("\n")[:-1] == ["-cp", "a b", "", "Main", "$HOME"]
    assert make_launcher(real, tmp_path / "made") == home


def test_an_old_java_is_passed_over_for_the_one_from_pypi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = tmp_path / "old" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.22\"' >&2\n")
    java.chmod(0o700)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    monkeypatch.setenv("PATH", f"{java.parent}{os.pathsep}/nowhere")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    home = find_java_home()
    output = subprocess.run([f"{home}/bin/java", "-version"], env={"PATH": os.defpath}, capture_output=True, check=True)
    assert b'"21.0' in output.stderr
