"""Apache RocketMQ for the comparison: name server, and broker with its gRPC proxy in one process, from Maven's
packages, with their data in a given folder, on ports chosen by the system, ended by their process ids. Does not know
the measurements."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.processes import PATIENCE_S, ChildFailed
from tools.maven import classpath

VERSION = "5.5.0"
ARTIFACTS = tuple(f"org.apache.rocketmq:rocketmq-{name}:{VERSION}" for name in ("namesrv", "broker", "proxy"))
HEAP = "1g"
NAME_SERVER_HEAP = "256m"

FLUSH_TYPES = {"async": "ASYNC_FLUSH", "sync": "SYNC_FLUSH"}

# Flags of RocketMQ's start scripts, with smaller heaps and without AlwaysPreTouch.
_FLAGS = (
    "-server",
    "-XX:+UseG1GC",
    "-XX:G1ReservePercent=25",
    "-XX:InitiatingHeapOccupancyPercent=30",
    "-XX:SoftRefLRUPolicyMSPerMB=0",
    "-XX:-OmitStackTraceInFastThrow",
    "-XX:MaxDirectMemorySize=2g",
)


@dataclass(frozen=True, slots=True)
class Peer:
    """A running RocketMQ. `pid` is the process of broker and proxy. `started_s` is the start time of the first
    process."""

    pid: int
    name_server_pid: int
    port: int
    grpc_port: int
    name_server_port: int
    started_s: float


@contextmanager
def rocketmq_in(folder: Path, flush: str, more: Mapping[str, object] | None = None) -> Iterator[Peer]:
    """Runs RocketMQ with its data in `folder` and `more` settings of the broker. Yields once all its ports accept
    connections; removes `folder` at the end."""
    libraries = classpath(ARTIFACTS)
    folder.mkdir(parents=True)
    (folder / "conf").mkdir()
    name_server, port, grpc, proxy, replicas = _free_ports(5)
    _write_properties(folder / "namesrv.conf", {"listenPort": name_server, "bindAddress": "127.0.0.1"})
    _write_properties(folder / "broker.conf", {**_broker(folder, port, replicas, name_server, flush), **(more or {})})
    (folder / "rmq-proxy.json").write_text(json.dumps(_proxy(name_server, grpc, proxy)))
    started: list[subprocess.Popen[bytes]] = []
    started_s = time.perf_counter()
    try:
        command = ["org.apache.rocketmq.namesrv.NamesrvStartup", "-c", str(folder / "namesrv.conf")]
        started.append(_start(folder, libraries, NAME_SERVER_HEAP, command, "namesrv.out"))
        _await_port(started[0], name_server, folder / "namesrv.out")
        address = f"127.0.0.1:{name_server}"
        command = ["org.apache.rocketmq.proxy.ProxyStartup", "-pm", "LOCAL", "-n", address]
        command += ["-bc", str(folder / "broker.conf"), "-pc", str(folder / "rmq-proxy.json")]
        started.append(_start(folder, libraries, HEAP, command, "broker.out"))
        for each in (port, grpc):
            _await_port(started[1], each, folder / "broker.out")
        yield Peer(started[1].pid, started[0].pid, port, grpc, name_server, started_s)
    finally:
        for process in reversed(started):
            _end(process)
        shutil.rmtree(folder, ignore_errors=True)


def _broker(folder: Path, port: int, replicas: int, name_server: int, flush: str) -> Mapping[str, object]:
    """RocketMQ's defaults, except for addresses, paths and the flush mode."""
    return {
        "brokerClusterName": "DefaultCluster",
        "brokerName": "broker-a",
        "brokerIP1": "127.0.0.1",
        "brokerIP2": "127.0.0.1",
        "listenPort": port,
        "haListenPort": replicas,
        "namesrvAddr": f"127.0.0.1:{name_server}",
        "storePathRootDir": folder / "store",
        "storePathCommitLog": folder / "store" / "commitlog",
        "flushDiskType": FLUSH_TYPES[flush],
    }


def _proxy(name_server: int, grpc: int, remoting: int) -> Mapping[str, object]:
    return {
        "rocketMQClusterName": "DefaultCluster",
        "proxyMode": "LOCAL",
        "namesrvAddr": f"127.0.0.1:{name_server}",
        "grpcServerPort": grpc,
        "remotingListenPort": remoting,
        "localServeAddr": "127.0.0.1",
    }


def _write_properties(path: Path, properties: Mapping[str, object]) -> None:
    path.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))


def _start(folder: Path, libraries: str, heap: str, command: Sequence[str], log: str) -> subprocess.Popen[bytes]:
    words = ["java", f"-Xms{heap}", f"-Xmx{heap}", *_FLAGS, f"-Duser.home={folder}", f"-Drmq.proxy.home={folder}"]
    with (folder / log).open("wb") as output:
        return subprocess.Popen(
            [*words, "-cp", libraries, *command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={**os.environ, "ROCKETMQ_HOME": str(folder)},
        )


def _await_port(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    until_s = time.perf_counter() + 2 * PATIENCE_S
    while True:
        if process.poll() is not None or time.perf_counter() > until_s:
            raise ChildFailed(f"RocketMQ did not start:\n{log.read_text()[-3000:]}")
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
    """Ports that were free when checked, together with the port two below each, on which a broker listens too."""
    ports: list[int] = []
    while len(ports) < count:
        with socket.create_server(("127.0.0.1", 0)) as found:
            port: int = found.getsockname()[1]
        with socket.socket() as below:
            is_used = below.connect_ex(("127.0.0.1", port - 2)) == 0
        if not is_used and not {port - 2, port, port + 2} & set(ports):
            ports.append(port)
    return ports
