"""Programs in `clients/rocketmq-java`, compiled against one version of RocketMQ's Java client."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest
from compat.cache import do, require
from compat.maven import classpath
from compat.programs import SOURCES, Line, Program, fingerprint

from tools.download_cache import cached_folder

# Short runs are faster with a small heap and the first compiler than with the server's defaults. The intervals make
# members rebalance sooner than by default.
_QUICK = ("-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_INTERVALS = ("-Drocketmq.client.rebalance.waitInterval=1000", "-Drocketmq.client.rebalance.minInterval=200")


def rocketmq_client(version: str, home: Path, main: str = "Client") -> Program:
    """The program with `rocketmq-client` of this version; `NewerClient` uses the features of newer versions. The client
    stores its logs and the offsets of broadcasts in `home`. Skips the test where Java or Maven is missing."""
    require("javac")
    libraries = classpath((f"org.apache.rocketmq:rocketmq-client:{version}", "org.slf4j:slf4j-nop:1.7.36"))
    sources = sorted((SOURCES / "rocketmq-java").glob("*.java" if main == "Client" else "**/*.java"))

    def compile_into(folder: Path) -> None:
        do(["javac", "-nowarn", "-Xlint:none", "-cp", libraries, "-d", str(folder), *map(str, sources)], folder)

    folder = cached_folder("java", f"rocketmq-{version}-{fingerprint(sources)}", compile_into)
    return Program(("java", *_QUICK, *_INTERVALS, f"-Duser.home={home}", "-cp", f"{folder}:{libraries}", main))


def grpc_client(version: str, home: Path) -> Program:
    """The program with `rocketmq-client-java`, which uses gRPC. Its logs are written to `home`."""
    require("javac")
    libraries = classpath((f"org.apache.rocketmq:rocketmq-client-java:{version}", "org.slf4j:slf4j-nop:1.7.36"))
    sources = sorted((SOURCES / "rocketmq-grpc-java").glob("*.java"))

    def compile_into(folder: Path) -> None:
        do(["javac", "-nowarn", "-Xlint:none", "-cp", libraries, "-d", str(folder), *map(str, sources)], folder)

    folder = cached_folder("java", f"rocketmq-grpc-{version}-{fingerprint(sources)}", compile_into)
    return Program(("java", *_QUICK, f"-Duser.home={home}", "-cp", f"{folder}:{libraries}", "GrpcClient"))


def run_together(program: Program, names: str, scenarios: Iterable[str]) -> dict[str, list[Line]]:
    """Output of each scenario; all run at the same time in one process, since they wait most of the time."""
    found: dict[str, list[Line]] = {scenario: [] for scenario in scenarios}
    for line in program.run(names, ",".join(found)):
        found[line.pop("scenario")].append(line)
    return found


def lines_of(found: dict[str, list[Line]], scenario: str) -> list[Line]:
    """Output of a scenario; fails if the scenario failed."""
    for line in found[scenario]:
        if "failed" in line:
            pytest.fail(f"{scenario}: {line['failed'][:3000]}", pytrace=False)
    return found[scenario]
