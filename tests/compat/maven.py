"""Java libraries for tests that compare with the genuine thing: fetched by Maven once, then kept in a cache folder."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from compat.cache import do, made_once, require

_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
<modelVersion>4.0.0</modelVersion><groupId>trimq</groupId><artifactId>fetched</artifactId><version>1</version>
<dependencies>{dependencies}</dependencies>
</project>
"""
_DEPENDENCY = "<dependency><groupId>{0}</groupId><artifactId>{1}</artifactId><version>{2}</version></dependency>"


def classpath(artifacts: Sequence[str]) -> str:
    """A class path with these `group:artifact:version` and all that they need. Skips the test where Java is missing."""
    require("java", "mvn")
    pom = _POM.format(dependencies="".join(_DEPENDENCY.format(*artifact.split(":")) for artifact in artifacts))
    folder = made_once("maven", hashlib.sha256(pom.encode()).hexdigest()[:16], lambda folder: _fetch(folder, pom))
    return f"{folder}/libraries/*"


def _fetch(folder: Path, pom: str) -> None:
    (folder / "pom.xml").write_text(pom)
    do(
        ["mvn", "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=libraries", "-DincludeScope=runtime"],
        folder,
    )
