"""Java libraries of other brokers and clients, downloaded by Maven."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tools.download_cache import cached_folder

_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
<modelVersion>4.0.0</modelVersion><groupId>trimq</groupId><artifactId>fetched</artifactId><version>1</version>
<dependencies>{dependencies}</dependencies>
</project>
"""
_DEPENDENCY = "<dependency><groupId>{0}</groupId><artifactId>{1}</artifactId><version>{2}</version>{3}</dependency>"
_ALONE = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"


class JavaMissing(Exception):
    """A required program is not on this machine."""


class NotFetched(Exception):
    """Maven did not download the libraries. The text holds its output."""


def classpath(artifacts: Sequence[str], alone: bool = False) -> str:
    """Returns a class path with these `group:artifact:version` and their dependencies; without dependencies if
    `alone`."""
    for program in ("java", "mvn"):
        if shutil.which(program) is None:
            raise JavaMissing(f"there is no {program} on this machine")
    without = _ALONE if alone else ""
    named = (_DEPENDENCY.format(*artifact.split(":"), without) for artifact in artifacts)
    pom = _POM.format(dependencies="".join(named))
    folder = cached_folder("maven", hashlib.sha256(pom.encode()).hexdigest()[:16], lambda folder: _fetch(folder, pom))
    return f"{folder}/libraries/*"


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
        raise NotFetched(fetched.stdout)
