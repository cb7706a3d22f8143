"""Real RocketMQ clients sign their requests to a broker with users, and have the permissions of the user."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from compat.cache import do, require
from compat.maven import classpath
from compat.programs import SOURCES, Program, fingerprint
from compat.rocketmq_wire import Wire

from tools.download_cache import cached_folder
from tools.users import make_users, put_user
from trimq.testing import Broker

pytestmark = pytest.mark.timeout(300)

SECRET = "alice's secret key"
_QUICK = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Drocketmq.client.rebalance.waitInterval=1000")


@pytest.fixture
def broker() -> Iterator[Broker]:
    names = "^(orders|readers|readers-producers|%RETRY%readers|RMQ_SYS_.*)$"
    with Broker(rocketmq_grpc_listen="127.0.0.1:0") as broker:
        with Wire(broker.addresses["rocketmq_broker"]) as wire:
            wire.create_topic("orders", 2)
            wire.done(200, body=b'{"groupName": "readers"}')
        make_users(broker.http, alice={"configure": names, "write": names, "read": names})
        put_user(broker.http, "alice", rocketmq_secret=SECRET)
        yield broker


def java_client(version: str, home: Path) -> Program:
    require("javac")
    libraries = classpath(
        tuple(f"org.apache.rocketmq:rocketmq-{part}:{version}" for part in ("client", "acl"))
        if version.startswith("4.")
        else (f"org.apache.rocketmq:rocketmq-client:{version}",)
    )
    source = SOURCES / "rocketmq-logins" / "Logins.java"

    def compile_into(folder: Path) -> None:
        do(["javac", "-nowarn", "-Xlint:none", "-cp", libraries, "-d", str(folder), str(source)], folder)

    folder = cached_folder("java", f"rocketmq-logins-{version}-{fingerprint([source])}", compile_into)
    return Program(("java", *_QUICK, f"-Duser.home={home}", "-cp", f"{folder}:{libraries}", "Logins"))


@pytest.mark.external
@pytest.mark.parametrize("version", ["4.9.8", "5.5.0"])
def test_the_java_client_sends_and_reads_with_its_key_only(version: str, broker: Broker, tmp_path: Path) -> None:
    program = java_client(version, tmp_path)
    given = {"topic": "orders", "group": "readers"}
    (right,) = program.run(broker.rocketmq, "-", user="alice", secret=SECRET, **given)
    assert right == {"sent": "SEND_OK", "read": "hello"}
    for changes in ({"secret": "wrong"}, {"user": ""}, {"topic": "others"}):
        asked = {"user": "alice", "secret": SECRET, **given, **changes}
        (refused,) = program.run(broker.rocketmq, "-", **asked)
        assert "No route info of this topic" in refused["sent"]  # the name server refuses already


def cpp_producer(broker: Broker, key: tuple[str, str] | None) -> Any:
    from rocketmq.client import Producer

    producer: Any = Producer("readers-producers")
    producer.set_namesrv_addr(broker.rocketmq)
    if key is not None:
        producer.set_session_credentials(*key, "")
    producer.start()
    return producer


def test_the_cpp_client_sends_with_its_key_only(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rocketmq.client import Message, PullConsumer
    from rocketmq.exceptions import RocketMQException

    monkeypatch.setenv("HOME", str(tmp_path))
    message: Any = Message("orders")
    message.set_body("hello")
    for key in (("alice", "wrong"), None):
        producer = cpp_producer(broker, key)
        with pytest.raises(RocketMQException):
            producer.send_sync(message)
        producer.shutdown()
    producer = cpp_producer(broker, ("alice", SECRET))
    assert producer.send_sync(message).status == 0
    producer.shutdown()
    consumer: Any = PullConsumer("readers")
    consumer.set_namesrv_addr(broker.rocketmq)
    consumer.set_session_credentials("alice", SECRET, "")
    consumer.start()
    assert [bytes(found.body) for found in consumer.pull("orders")] == [b"hello"]
    consumer.shutdown()


def test_the_python_client_over_grpc_sends_and_reads_with_its_key_only(broker: Broker, tmp_path: Path) -> None:
    # In a process of its own: its threads end only with the process.
    source = SOURCES / "rocketmq-logins" / "grpc_client.py"
    program = Program((sys.executable, "-W", "ignore", str(source)), {"HOME": str(tmp_path)})
    (right,) = program.run(broker.rocketmq_grpc, "-", user="alice", secret=SECRET)
    assert right == {"sent": "ok", "read": ["hello"]}
    for user, secret in (("alice", "wrong"), ("", "")):
        (wrong,) = program.run(broker.rocketmq_grpc, "-", user=user, secret=secret)
        assert wrong["sent"] != "ok"
