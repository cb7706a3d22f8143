"""Java libraries for tests that compare with the genuine thing: fetched by Maven once, then kept in a cache folder."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
<modelVersion>4.0.0</modelVersion><groupId>trimq</groupId><artifactId>fetched</artifactId><version>1</version>
<dependencies>{dependencies}</dependencies>
</project>
"""
_DEPENDENCY = "<dependency><groupId>{0}</groupId><artifactId>{1}</artifactId><version>{2}</version></dependency>"


def classpath(artifacts: Sequence[str]) -> str:
    """A class path with these `group:artifact:version` and all that they need. Skips the test where Java is missing."""
    for program in ("java", "mvn"):
        if shutil.which(program) is None:
            pytest.skip(f"there is no {program} on this machine")
    pom = _POM.format(dependencies="".join(_DEPENDENCY.format(*artifact.split(":")) for artifact in artifacts))
    folder = _cache() / hashlib.sha256(pom.encode()).hexdigest()[:16]
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # tests run in several processes
        if not (folder / "complete").exists():
            _fetch(folder, pom)
            (folder / "complete").touch()
    return f"{folder}/libraries/*"


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "trimq" / "maven"


def _fetch(folder: Path, pom: str) -> None:
    (folder / "pom.xml").write_text(pom)
    command = [
        "mvn",
        "-q",
        "-B",
        "dependency:copy-dependencies",
        "-DoutputDirectory=libraries",
        "-DincludeScope=runtime",
    ]
    fetched = subprocess.run(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if fetched.returncode != 0:
        pytest.fail(f"Maven could not fetch the libraries:\n{fetched.stdout}", pytrace=False)
