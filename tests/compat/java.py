"""Programs in Java, compiled against one version of the client library."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from compat.cache import do, require
from compat.maven import classpath
from compat.programs import SOURCES, Program, fingerprint

from tools.download_cache import cached_folder

# Short runs are faster with a small heap and the first compiler than with the server's defaults.
_QUICK = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_SILENT = "org.slf4j:slf4j-nop:1.7.36"


def java_client(version: str, main: str = "Client") -> Program:
    """The program with Kafka's Java client of this version; `NewerClient` uses the features of newer versions. Skips
    the test where Java or Maven is missing."""
    sources = sorted((SOURCES / "java").glob("*.java" if main == "Client" else "**/*.java"))
    return _compiled(f"org.apache.kafka:kafka-clients:{version}", sources, main)


def amqp_java_client(version: str) -> Program:
    """The program with RabbitMQ's Java client of this version. Skips the test where Java or Maven is missing."""
    sources = [*sorted((SOURCES / "amqp-java").glob("*.java")), SOURCES / "java" / "Lines.java"]
    return _compiled(f"com.rabbitmq:amqp-client:{version}", sources, "Client")


def _compiled(library: str, sources: Sequence[Path], main: str) -> Program:
    require("javac")
    libraries = classpath((library, _SILENT))

    def compile_into(folder: Path) -> None:
        do(["javac", "-nowarn", "-cp", libraries, "-d", str(folder), *map(str, sources)], folder)

    folder = cached_folder("java", f"{library.rpartition(':')[2]}-{fingerprint(sources)}", compile_into)
    return Program(("java", *_QUICK, "-cp", f"{folder}:{libraries}", main))
