"""An Apache RocketMQ broker with its own folder and port, without a name server: stopped cleanly, or killed."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest
from compat.maven import classpath

VERSION = "5.5.0"
START_S = 90

# Small files, so that there are several of each kind, and synchronous flush.
SIZES = {
    "mappedFileSizeCommitLog": 1 << 20,
    "mappedFileSizeConsumeQueue": 20 * 100,
    "maxHashSlotNum": 500,
    "maxIndexNum": 2000,
    "maxMessageSize": 1 << 16,
}


def broker_classpath() -> str:
    return classpath((f"org.apache.rocketmq:rocketmq-broker:{VERSION}",))


class GenuineBroker:
    """Process of an Apache RocketMQ broker. Its store is `folder/store`."""

    def __init__(self, folder: Path, **settings: object) -> None:
        self._folder = folder
        self.port = _free_port()
        self._settings = {**SIZES, **settings}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        libraries = broker_classpath()
        store = self._folder / "store"
        settings = {
            "brokerName": "broker-a",
            "brokerIP1": "127.0.0.1",
            "listenPort": self.port,
            "haListenPort": _free_port(),
            "storePathRootDir": store,
            "storePathCommitLog": store / "commitlog",
            "flushDiskType": "SYNC_FLUSH",
            "transactionCheckInterval": 600_000,
            **self._settings,
        }
        self._folder.mkdir(parents=True, exist_ok=True)
        (self._folder / "conf").mkdir(exist_ok=True)
        configuration = self._folder / "broker.conf"
        configuration.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        command = ["java", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", f"-Duser.home={self._folder}"]
        command += ["-cp", libraries, "org.apache.rocketmq.broker.BrokerStartup", "-c", str(configuration)]
        log = self._folder / "broker.out"
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                command,
                env={**os.environ, "ROCKETMQ_HOME": str(self._folder)},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        deadline = time.monotonic() + START_S
        while not _answers(self.port):
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                pytest.fail(f"RocketMQ did not start:\n{log.read_text()[-3000:]}", pytrace=False)
            time.sleep(0.1)

    def stop(self) -> None:
        """Stops the broker cleanly."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(60)

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()


class GenuineNameServer:
    """Process of an Apache RocketMQ name server."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.port = _free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        configuration = self._folder / "namesrv.conf"
        configuration.write_text(f"listenPort={self.port}\nkvConfigPath={self._folder / 'kv.json'}\n")
        libraries = classpath((f"org.apache.rocketmq:rocketmq-namesrv:{VERSION}",))
        command = ["java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", f"-Duser.home={self._folder}"]
        command += ["-cp", libraries, "org.apache.rocketmq.namesrv.NamesrvStartup", "-c", str(configuration)]
        log = self._folder / "namesrv.out"
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                command,
                env={**os.environ, "ROCKETMQ_HOME": str(self._folder)},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        deadline = time.monotonic() + START_S
        while not _answers(self.port):
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                pytest.fail(f"RocketMQ's name server did not start:\n{log.read_text()[-3000:]}", pytrace=False)
            time.sleep(0.1)

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()


def _free_port() -> int:
    """Returns a free port with the second port below it free too: a broker opens both."""
    while True:
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            port: int = found.getsockname()[1]
        if not _answers(port - 2):
            return port


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
