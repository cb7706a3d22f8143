"""RocketMQ's store opens TriMQ's folders, and TriMQ opens those of Apache RocketMQ: each continues where the other
ended."""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from compat.cache import do, require
from compat.programs import SOURCES, fingerprint
from compat.rocketmq_peer import SIZES, GenuineBroker, broker_classpath
from compat.rocketmq_wire import COMMIT, ROLLBACK, Wire

from tools.broker import running
from tools.download_cache import cached_folder

pytestmark = [pytest.mark.external, pytest.mark.timeout(300)]

FLAGS = ["--rocketmq-listen", "127.0.0.1:0", "--rocketmq-broker-listen", "127.0.0.1:0"]
FLAGS += ["--rocketmq-commit-file-bytes", str(SIZES["mappedFileSizeCommitLog"])]
FLAGS += ["--rocketmq-index-keys", str(SIZES["maxIndexNum"])]
# TriMQ's consume queues always have files of RocketMQ's default size.
READ_SIZES = {**SIZES, "mappedFileSizeConsumeQueue": 20 * 300_000}


class Killed(Exception):
    """Leaves the block of a running broker, which is then killed instead of stopped."""


@contextmanager
def our_broker(folder: Path) -> Iterator[Wire]:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "ready.json").unlink(missing_ok=True)
    with running(folder, FLAGS) as addresses, Wire(addresses["rocketmq_broker"]) as wire:
        yield wire


def read_store(folder: Path, scratch: Path, *questions: str) -> list[str]:
    """Output of RocketMQ's own code on a copy of the store. Skips the test where Java or Maven is missing."""
    require("javac")
    libraries = broker_classpath()
    sources = sorted((SOURCES / "rocketmq-store").glob("*.java"))

    def compile_into(made: Path) -> None:
        do(["javac", "-nowarn", "-cp", libraries, "-d", str(made), *map(str, sources)], made)

    made = cached_folder("java", f"rocketmq-store-{fingerprint(sources)}", compile_into)
    shutil.rmtree(scratch, ignore_errors=True)
    shutil.copytree(folder, scratch / "store")
    settings = scratch / "store.properties"
    settings.write_text("".join(f"{name}={value}\n" for name, value in READ_SIZES.items()))
    command = ["java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", f"-Duser.home={scratch}"]
    command += ["-cp", f"{made}:{libraries}", "StoreReader", str(scratch / "store"), str(settings)]
    done = subprocess.run([*command, *questions], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr[-3000:]
    known = re.compile(r"(loaded|log|queue|key|message|stopped) ")
    return [line for line in done.stdout.splitlines() if known.match(line)]


def bodies(lines: list[str]) -> list[str]:
    return [line.split(" ", 3)[3] for line in lines if line.startswith("message ")]


def write_much(wire: Wire) -> None:
    wire.create_topic("orders", 2)
    for number in range(60):
        keys = {"KEYS": f"k{number % 7}", "TAGS": "TagA"}
        wire.send("orders", b"%02d " % number + b"x" * 30_000, number % 2, **keys)


def test_rocketmqs_store_reads_our_files(tmp_path: Path) -> None:
    with our_broker(tmp_path / "ours") as wire:
        write_much(wire)
    store = tmp_path / "ours" / "data" / "store"
    assert len(list((store / "commitlog").iterdir())) > 1
    assert not (store / "abort").exists()
    asked = ("queue", "orders", "0", "queue", "orders", "1", "key", "orders", "k3", "key", "orders", "nothing")
    lines = read_store(store, tmp_path / "read", *asked)
    assert lines[0] == "loaded true"
    first = lines.index("queue orders 0 0 30")
    second = lines.index("queue orders 1 0 30")
    third, fourth = lines.index("key orders k3"), lines.index("key orders nothing")
    assert [int(body[:2]) for body in bodies(lines[first:second])] == list(range(0, 60, 2))
    assert [int(body[:2]) for body in bodies(lines[second:third])] == list(range(1, 60, 2))
    assert sorted(int(body[:2]) for body in bodies(lines[third:fourth])) == list(range(3, 60, 7))
    assert bodies(lines[fourth:]) == []


def test_rocketmqs_store_recovers_our_files_after_a_kill(tmp_path: Path) -> None:
    with suppress(Killed), our_broker(tmp_path / "ours") as wire:
        write_much(wire)
        raise Killed
    store = tmp_path / "ours" / "data" / "store"
    assert (store / "abort").exists()
    lines = read_store(store, tmp_path / "read", "queue", "orders", "0", "key", "orders", "k3")
    middle = lines.index("key orders k3")
    assert [int(body[:2]) for body in bodies(lines[:middle])] == list(range(0, 60, 2))
    assert sorted(int(body[:2]) for body in bodies(lines[middle:])) == list(range(3, 60, 7))


def write_some_of_each(wire: Wire) -> None:
    wire.create_topic("orders", 2)
    wire.heartbeat("readers", "orders")
    for number in range(20):
        wire.send("orders", b"%02d" % number, number % 2, KEYS=f"k{number}", UNIQ_KEY=f"U{number:05d}")
    wire.commit_offset("readers", "orders", 0, 4)
    wire.send("orders", b"later", 0, DELAY=18, UNIQ_KEY="LATER")
    wire.send("orders", b"timed", 0, TIMER_DELAY_SEC=86_400, UNIQ_KEY="TIMED")
    wire.decide(wire.prepare("orders", b"yes", 1, UNIQ_KEY="YES"), COMMIT)
    wire.decide(wire.prepare("orders", b"no", 1, UNIQ_KEY="NO"), ROLLBACK)


def check_some_of_each(wire: Wire) -> None:
    assert wire.offset("readers", "orders", 0) == 4
    assert wire.bodies("orders", 4, 0) == [b"%02d" % number for number in range(8, 20, 2)]
    assert wire.bodies("orders", 0, 1) == [b"%02d" % number for number in range(1, 20, 2)] + [b"yes"]
    assert int(wire.done(30, {"topic": "SCHEDULE_TOPIC_XXXX", "queueId": 17})["offset"]) == 1
    assert int(wire.done(30, {"topic": "rmq_sys_wheel_timer", "queueId": 0})["offset"]) == 1
    header, found = wire.ask(
        12, {"topic": "orders", "key": "k7", "maxNum": 32, "beginTimestamp": 0, "endTimestamp": 2**62}
    )
    assert header["code"] == 0
    assert found.count(b"k7") == 1
    assert wire.send("orders", b"next", 0)["queueOffset"] == "10"


def test_apache_rocketmq_continues_our_folder(tmp_path: Path) -> None:
    with our_broker(tmp_path / "ours") as wire:
        write_some_of_each(wire)
    shutil.copytree(tmp_path / "ours" / "data" / "store", tmp_path / "theirs" / "store")
    genuine = GenuineBroker(tmp_path / "theirs", **READ_SIZES)
    genuine.start()
    try:
        with Wire(genuine.address) as wire:
            check_some_of_each(wire)
    finally:
        genuine.kill()


@pytest.mark.parametrize("ends", ["stop", "kill"])
def test_we_continue_the_folder_of_apache_rocketmq(ends: str, tmp_path: Path) -> None:
    genuine = GenuineBroker(tmp_path / "theirs")
    genuine.start()
    try:
        with Wire(genuine.address) as wire:
            write_some_of_each(wire)
            if ends == "kill":  # offsets are written every five seconds
                deadline = 40
                offsets = tmp_path / "theirs" / "store" / "config" / "consumerOffset.json"
                while "orders@readers" not in (offsets.read_text() if offsets.exists() else ""):
                    assert deadline, "Apache RocketMQ does not write its offsets"
                    deadline -= 1
                    time.sleep(0.5)
        getattr(genuine, ends)()
    finally:
        genuine.kill()
    shutil.copytree(tmp_path / "theirs" / "store", tmp_path / "ours" / "data" / "store")
    with our_broker(tmp_path / "ours") as wire:
        check_some_of_each(wire)


def test_one_broker_at_a_time_uses_a_folder(tmp_path: Path) -> None:
    """Apache RocketMQ does not start in a folder that TriMQ uses."""
    with our_broker(tmp_path / "ours"):
        genuine = GenuineBroker(tmp_path / "ours" / "data")
        with pytest.raises(pytest.fail.Exception, match="Lock failed"):
            genuine.start()
