"""The programs of `clients/java`, compiled against one version of Kafka's own Java client."""

from __future__ import annotations

from pathlib import Path

from compat.cache import do, require
from compat.maven import classpath
from compat.programs import SOURCES, Program, fingerprint

from tools.made_once import made_once

# A short life is better served by a small heap and the first compiler than by the server's defaults.
_QUICK = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


def java_client(version: str, main: str = "Client") -> Program:
    """The program with `kafka-clients` of this version; `NewerClient` is for those that have all we use. Skips the
    test where Java or Maven is missing."""
    require("javac")
    libraries = classpath((f"org.apache.kafka:kafka-clients:{version}", "org.slf4j:slf4j-nop:1.7.36"))
    sources = sorted((SOURCES / "java").glob("*.java" if main == "Client" else "**/*.java"))

    def compile_into(folder: Path) -> None:
        do(["javac", "-nowarn", "-cp", libraries, "-d", str(folder), *map(str, sources)], folder)

    folder = made_once("java", f"{version}-{fingerprint(sources)}", compile_into)
    return Program(("java", *_QUICK, "-cp", f"{folder}:{libraries}", main))
