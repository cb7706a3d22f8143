"""Database servers from Debian's packages, each started in a folder of its own: PostgreSQL, MariaDB, Redis."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from compat.cache import require
from compat.debian import debian_folder, library_path

PATIENCE_S = 60
POSTGRES_VERSION = "15"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _as_nobody(command: Sequence[str]) -> list[str]:
    """PostgreSQL refuses to run as root, and sees another user in a namespace of its own."""
    if os.getuid() != 0:
        return list(command)
    require("unshare")
    return ["unshare", "--user", "--map-user=1000", "--map-group=1000", *command]


@contextmanager
def _running(
    command: Sequence[str], log: Path, answers: Callable[[], object], libraries: str, stop: int = signal.SIGTERM
) -> Iterator[None]:
    """Starts a server and waits until it answers; ends it without waiting for its clients."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            env={**os.environ, "LD_LIBRARY_PATH": libraries},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    try:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                answers()
                break
            except Exception as error:
                if process.poll() is not None or time.monotonic() > deadline:
                    pytest.fail(f"{command[0]} did not start ({error}):\n{log.read_text()[-3000:]}", pytrace=False)
                time.sleep(0.05)
        yield
    finally:
        process.send_signal(stop)
        process.wait(PATIENCE_S)


@contextmanager
def redis_server(folder: Path) -> Iterator[str]:
    """Yields the address of a Redis."""
    root, port = debian_folder("redis-server", "5:7.0"), _free_port()
    command = [str(root / "usr/bin/redis-server"), "--port", str(port), "--bind", "127.0.0.1", "--save", ""]
    url = f"redis://127.0.0.1:{port}/0"

    def answers() -> None:
        import redis

        client = redis.Redis.from_url(url)
        try:
            client.ping()
        finally:
            client.close()

    with _running([*command, "--dir", str(folder)], folder / "redis.log", answers, library_path(root)):
        yield url


@contextmanager
def postgres_server(folder: Path) -> Iterator[str]:
    """Yields the connection string of a PostgreSQL."""
    root, port = debian_folder(f"postgresql-{POSTGRES_VERSION}", POSTGRES_VERSION), _free_port()
    programs, data = root / f"usr/lib/postgresql/{POSTGRES_VERSION}/bin", folder / "postgres"
    libraries = library_path(root)
    done = subprocess.run(
        _as_nobody([str(programs / "initdb"), "-D", str(data), "-U", "shop", "-A", "trust", "-E", "UTF8", "--no-sync"]),
        env={**os.environ, "LD_LIBRARY_PATH": libraries},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        pytest.fail(f"initdb failed:\n{done.stdout[-1500:]}{done.stderr[-1500:]}", pytrace=False)
    words = ["-D", str(data), "-p", str(port), "-h", "127.0.0.1", "-k", "", "-c", "max_prepared_transactions=20"]
    conninfo = f"host=127.0.0.1 port={port} user=shop dbname=postgres"

    def answers() -> None:
        import psycopg

        psycopg.connect(conninfo).close()

    command = _as_nobody([str(programs / "postgres"), *words])
    # SIGTERM would wait until all clients are gone.
    with _running(command, folder / "postgres.log", answers, libraries, signal.SIGINT):
        yield conninfo


@contextmanager
def mariadb_server(folder: Path) -> Iterator[dict[str, Any]]:
    """Yields the arguments to connect to a MariaDB."""
    root, port = debian_folder("mariadb-server-core", "1:10.11"), _free_port()
    data, libraries = folder / "mariadb", library_path(root)
    data.mkdir()
    words = [
        "--no-defaults", f"--datadir={data}", f"--lc-messages-dir={root / 'usr/share/mysql'}",
        f"--character-sets-dir={root / 'usr/share/mysql/charsets'}", f"--plugin-dir={root / 'usr/lib/mysql/plugin'}",
        "--skip-grant-tables",  # needs no tables of users and rights
        *(["--user=root"] if os.getuid() == 0 else []),
    ]  # fmt: skip
    arguments: dict[str, Any] = {"host": "127.0.0.1", "port": port, "user": "root", "database": "shop"}

    def answers() -> None:
        import pymysql

        connection = pymysql.connect(**{**arguments, "database": None})
        connection.cursor().execute("create database if not exists shop")
        connection.close()

    # The path of a socket must be short.
    socket_folder = Path("/tmp") / f"trimq-mariadb-{port}"
    socket_folder.mkdir()
    command = [str(root / "usr/sbin/mariadbd"), *words, f"--port={port}", "--bind-address=127.0.0.1"]
    command += [f"--socket={socket_folder / 's'}", f"--pid-file={folder / 'mariadb.pid'}", "--skip-name-resolve"]
    try:
        with _running(command, folder / "mariadb.log", answers, libraries):
            yield arguments
    finally:
        shutil.rmtree(socket_folder)
