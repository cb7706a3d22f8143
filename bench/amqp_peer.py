"""RabbitMQ for the comparison: version 4 and Erlang from Debian's packages, unpacked into the cache folder, so that
nothing is installed and no root rights are needed. Does not know the measurements."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.processes import PATIENCE_S, ChildFailed
from tools.download_cache import cached_folder

SUITE = "sid"
"""Debian suite; the stable suites have RabbitMQ 3."""

_NEEDED = re.compile(r"^Inst ((?:erlang|rabbitmq|lib|zlib|gcc)\S*)", re.MULTILINE)
_ELF = b"\x7fELF"

# The programs may be built for a newer Debian than the machine has: each runs with the loader and libraries of its own
# suite.
_WRAPPER = """#!/bin/sh
exec {loader} --library-path {libraries} --argv0 "$0" "$0.elf" "$@"
"""


class DebianMissing(Exception):
    """RabbitMQ cannot be downloaded on this machine."""


class Peer:
    """A running RabbitMQ. `started_s` is the start time of its process."""

    def __init__(self, pid: int, port: int, started_s: float) -> None:
        self.pid = pid
        self.port = port
        self.started_s = started_s


def version() -> str:
    return _home(_unpacked()).name.removeprefix("rabbitmq_server-")


@contextmanager
def rabbitmq_in(folder: Path, definitions: Mapping[str, Any] | None = None) -> Iterator[Peer]:
    """Runs RabbitMQ with its data in `folder`. Yields once its port accepts connections; removes `folder` at the end.
    `definitions`: what RabbitMQ exports and imports; then its users are only those in them."""
    root = _unpacked()
    folder.mkdir(parents=True)
    port, distribution, mapper = _free_ports(3)
    environment = _environment(root, folder, port, distribution, mapper)
    (folder / "rabbitmq.conf").touch()
    if definitions is not None:
        (folder / "definitions.json").write_text(json.dumps(definitions))
        (folder / "rabbitmq.conf").write_text(f"load_definitions = {folder / 'definitions.json'}\n")
    (folder / "enabled_plugins").write_text("[].")
    erlang = _programs(root)
    with (folder / "rabbitmq.out").open("wb") as log:
        names = subprocess.Popen(
            [str(erlang / "epmd"), "-port", str(mapper)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=environment,
        )
        started_s = time.perf_counter()
        script = subprocess.Popen(
            [str(_home(root) / "sbin" / "rabbitmq-server")],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=environment,
        )
    try:
        _await_port(script, port, folder / "rabbit.pid", folder / "rabbitmq.out")
        yield Peer(int((folder / "rabbit.pid").read_text()), port, started_s)
    finally:
        _end(script)  # forwards the signal and ends after the broker
        _end(names)
        shutil.rmtree(folder, ignore_errors=True)


def _environment(root: Path, folder: Path, port: int, distribution: int, mapper: int) -> dict[str, str]:
    erlang = _programs(root).parent.parent
    ours = {name: value for name, value in os.environ.items() if not name.startswith(("RABBITMQ_", "ERL_", "LD_"))}
    return ours | {
        "HOME": str(folder),  # for the Erlang cookie
        "PATH": f"{erlang}/bin:{os.environ['PATH']}",
        "LC_ALL": "C.UTF-8",
        "ERL_EPMD_PORT": str(mapper),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "RABBITMQ_HOME": str(_home(root)),
        "RABBITMQ_NODENAME": f"bench{port}@localhost",
        "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODE_PORT": str(port),
        "RABBITMQ_DIST_PORT": str(distribution),
        "RABBITMQ_MNESIA_BASE": str(folder / "data"),
        "RABBITMQ_LOG_BASE": str(folder / "log"),
        "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "enabled_plugins"),
        "RABBITMQ_PID_FILE": str(folder / "rabbit.pid"),
        "RABBITMQ_CONF_ENV_FILE": "/dev/null",
    }


def _await_port(process: subprocess.Popen[bytes], port: int, written: Path, log: Path) -> None:
    """Waits until the port accepts connections and a file is written: on a busy machine the port is first."""
    until_s = time.perf_counter() + PATIENCE_S
    while True:
        if process.poll() is not None or time.perf_counter() > until_s:
            raise ChildFailed(f"RabbitMQ did not start:\n{log.read_text(errors='replace')}")
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            if written.exists():
                return
        except OSError:
            pass
        time.sleep(0.005)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _free_ports(count: int) -> list[int]:
    """Ports that were free when checked: RabbitMQ needs the port numbers before it starts."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


# -- download


def _unpacked() -> Path:
    for program in ("apt-get", "dpkg"):
        if shutil.which(program) is None:
            raise DebianMissing(f"there is no {program} on this machine")
    return cached_folder("debian", f"rabbitmq-{SUITE}", _fetch) / "root"


def _home(root: Path) -> Path:
    return next(root.glob("usr/lib/rabbitmq/lib/rabbitmq_server-*"))


def _programs(root: Path) -> Path:
    return next(root.glob("usr/lib/erlang/erts-*/bin"))


def _fetch(folder: Path) -> None:
    for place in ("lists/partial", "cache/archives/partial", "archives"):
        (folder / place).mkdir(parents=True, exist_ok=True)
    (folder / "other.sources").write_text(_sources())
    own = {
        "Dir::State::lists": folder / "lists",
        "Dir::State::status": "/dev/null",  # installed packages do not count as dependencies
        "Dir::Cache": folder / "cache",
        "Dir::Etc::sourcelist": folder / "other.sources",
        "Dir::Etc::sourceparts": "-",
    }
    words = [word for name, value in own.items() for word in ("-o", f"{name}={value}")]
    if os.getuid() == 0:
        words += ["-o", "APT::Sandbox::User=root"]  # the user _apt may not have access to a home folder
    _do(["apt-get", "-q", *words, "update"], folder)
    planned = _do(["apt-get", *words, "-s", "--no-install-recommends", "install", "rabbitmq-server"], folder)
    _do(["apt-get", "-q", *words, "download", *_NEEDED.findall(planned)], folder / "archives")
    root = folder / "root"
    for archive in sorted((folder / "archives").glob("*.deb")):
        _do(["dpkg", "-x", str(archive), str(root)], folder)
    _wrap_programs(root)
    for script in root.glob("usr/lib/erlang/**/bin/erl"):  # has the installed path of Erlang in it
        script.write_text(script.read_text().replace("=/usr/lib/erlang", f"={root}/usr/lib/erlang"))
    for place in ("lists", "cache", "archives"):
        shutil.rmtree(folder / place)


def _sources() -> str:
    """Returns the APT source of this machine with another suite."""
    release = Path("/etc/os-release").read_text()
    found = re.search(r"^VERSION_CODENAME=(\w+)", release, re.MULTILINE)
    if found is None:
        raise DebianMissing("/etc/os-release has no VERSION_CODENAME")
    codename = found[1]
    for file in Path("/etc/apt/sources.list.d").glob("*.sources"):
        for entry in file.read_text().split("\n\n"):
            if re.search(rf"^Suites:.*\b{codename}(\s|$)", entry, re.MULTILINE):
                return re.sub(r"^Suites:.*$", f"Suites: {SUITE}", entry, flags=re.MULTILINE) + "\n"
    lists = Path("/etc/apt/sources.list")
    for line in lists.read_text().splitlines() if lists.exists() else ():
        if line.startswith("deb ") and f" {codename} " in line:
            _, address, _, *components = line.split()
            return f"Types: deb\nURIs: {address}\nSuites: {SUITE}\nComponents: {' '.join(components)}\n"
    raise DebianMissing(f"APT has no source of Debian {codename} on this machine")


def _wrap_programs(root: Path) -> None:
    loader = next(root.glob("usr/lib*/ld-linux-*.so.*"), None) or next(root.rglob("ld-linux-*.so.*"))
    libraries = ":".join(str(place) for place in root.glob("usr/lib/*-linux-gnu"))
    wrapper = _WRAPPER.format(loader=loader, libraries=libraries)
    for program in [path for path in (root / "usr/lib/erlang").rglob("*") if _is_program(path)]:
        program.rename(f"{program}.elf")
        program.write_text(wrapper)
        program.chmod(0o755)


def _is_program(path: Path) -> bool:
    if path.is_symlink() or not path.is_file() or path.suffix == ".so" or not os.access(path, os.X_OK):
        return False
    with path.open("rb") as file:
        return file.read(4) == _ELF


def _do(words: list[str], folder: Path) -> str:
    done = subprocess.run(
        words, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", check=False
    )
    if done.returncode:
        raise DebianMissing(f"{' '.join(words[:2])} … ended with {done.returncode}:\n{done.stdout[-2000:]}")
    return done.stdout
