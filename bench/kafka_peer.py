"""Apache Kafka for the comparison: one node from Maven's packages, with its data in a given folder, on ports chosen by
the system, ended by its process id. Does not know the measurements."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

from bench.processes import PATIENCE_S, ChildFailed
from tools.maven import classpath

VERSION = "4.3.1"
ARTIFACTS = (
    f"org.apache.kafka:kafka_2.13:{VERSION}",
    "org.apache.logging.log4j:log4j-slf4j-impl:2.25.1",
    "org.apache.logging.log4j:log4j-core:2.25.1",
)
HEAP = "512m"

# Flags of Kafka's start script, with another heap size.
_JAVA = (
    "java",
    f"-Xmx{HEAP}",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)

# Kafka's defaults, except for replication (one machine), delays that a measurement would have to wait for (first
# rebalance, deletion of files), and the number of partitions of internal topics (few groups are used).
_PROPERTIES = """process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs={logs}
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=4
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
log.segment.delete.delay.ms=500
"""
_CLUSTER = "MkU3OEVBNTcwNTJENDM2Qg"


class Peer:
    """A running Kafka. `started_s` is the start time of its process."""

    def __init__(self, pid: int, port: int, started_s: float) -> None:
        self.pid = pid
        self.port = port
        self.started_s = started_s


@contextmanager
def kafka_in(
    folder: Path, without: Collection[str] = (), properties_more: Mapping[str, str] = MappingProxyType({})
) -> Iterator[Peer]:
    """Runs Kafka with its data in `folder`, with its default for the properties in `without`, and with more properties,
    in which `{port}` and `{controller}` stand for the ports. Yields once its port accepts connections; removes `folder`
    at the end."""
    libraries = classpath(ARTIFACTS)
    folder.mkdir(parents=True)
    port, controller = _free_ports(2)
    properties = folder / "server.properties"
    lines = _PROPERTIES.format(port=port, controller=controller, logs=folder / "logs").splitlines()
    more = {name: value.format(port=port, controller=controller) for name, value in properties_more.items()}
    kept = [line for line in lines if line.partition("=")[0] not in {*without, *more}]
    kept += [f"{name}={value}" for name, value in more.items()]
    properties.write_text("\n".join(kept) + "\n")
    words = (*_JAVA, "-cp", libraries)
    _format(words, properties)
    with (folder / "kafka.log").open("wb") as log:
        started_s = time.perf_counter()
        process = subprocess.Popen(
            [*words, "kafka.Kafka", str(properties)], stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
    try:
        _await_port(process, port, folder / "kafka.log")
        yield Peer(process.pid, port, started_s)
    finally:
        _end(process)
        shutil.rmtree(folder)


def _format(words: tuple[str, ...], properties: Path) -> None:
    command = [*words, "kafka.tools.StorageTool", "format", "-t", _CLUSTER, "-c", str(properties)]
    formatted = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if formatted.returncode:
        raise ChildFailed(f"Kafka's folder could not be formatted:\n{formatted.stdout}")


def _await_port(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    until_s = time.perf_counter() + PATIENCE_S
    while True:
        if process.poll() is not None or time.perf_counter() > until_s:
            raise ChildFailed(f"Kafka did not start:\n{log.read_text()}")
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.005)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _free_ports(count: int) -> list[int]:
    """Ports that were free when checked: Kafka needs the port numbers before it starts."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports
