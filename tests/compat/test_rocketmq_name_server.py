"""An Apache RocketMQ broker registers with TriMQ's name server, and clients of that name server send to it; TriMQ's
brokers register with the name server of Apache RocketMQ."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from compat.rocketmq_peer import GenuineBroker, GenuineNameServer
from compat.rocketmq_wire import Wire

from tools.broker import running

pytestmark = [pytest.mark.external, pytest.mark.timeout(180)]

FLAGS = ["--rocketmq-listen", "127.0.0.1:0", "--rocketmq-broker-listen", "127.0.0.1:0"]
PATIENCE_S = 40


@contextmanager
def genuine(folder: Path, names: str) -> Iterator[GenuineBroker]:
    broker = GenuineBroker(folder, namesrvAddr=names, registerNameServerPeriod=10_000)
    broker.start()
    try:
        yield broker
    finally:
        broker.kill()


def brokers_of(wire: Wire, topic: str) -> dict[str, Any]:
    header, body = wire.ask(105, {"topic": topic})
    if header["code"]:
        return {}
    return {row["brokerName"]: row["brokerAddrs"] for row in json.loads(body)["brokerDatas"]}


def wait_for(wire: Wire, topic: str, wanted: dict[str, Any]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while (found := brokers_of(wire, topic)) != wanted:
        assert time.monotonic() < deadline, found
        time.sleep(0.1)


def send_with_client(names: str, topic: str, body: str) -> int:
    from rocketmq.client import Message, Producer

    producer: Any = Producer("pg")
    producer.set_namesrv_addr(names)
    producer.start()
    try:
        message: Any = Message(topic)
        message.set_body(body)
        return int(producer.send_sync(message).offset)
    finally:
        producer.shutdown()


def test_an_apache_rocketmq_broker_uses_our_name_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))  # the client writes its logs there
    folder = tmp_path / "ours"
    folder.mkdir()
    with running(folder, FLAGS) as addresses, Wire(addresses["rocketmq"]) as names:
        with genuine(tmp_path / "genuine", addresses["rocketmq"]) as broker:
            wait_for(names, "broker-a", {"broker-a": {"0": broker.address}})
            with Wire(broker.address) as wire:
                wire.create_topic("theirs", 1)
                wait_for(names, "theirs", {"broker-a": {"0": broker.address}})
                assert send_with_client(addresses["rocketmq"], "theirs", "through both") == 0
                assert wire.bodies("theirs") == [b"through both"]
            # Both brokers have the topic for automatic creation.
            ours = {"broker-trimq": {"0": addresses["rocketmq_broker"]}}
            wait_for(names, "TBW102", {**ours, "broker-a": {"0": broker.address}})
            _, clusters = names.ask(106)
            assert b'"DefaultCluster":["broker-trimq","broker-a"]' in clusters
        wait_for(names, "theirs", {})
        wait_for(names, "TBW102", ours)


def test_two_brokers_register_with_a_genuine_name_server(tmp_path: Path) -> None:
    names = GenuineNameServer(tmp_path / "names")
    names.start()
    try:
        with ExitStack() as opened:
            addresses = {}
            for name in ("one", "two"):
                folder = tmp_path / name
                folder.mkdir()
                flags = ["--rocketmq-listen", "off", "--rocketmq-broker-listen", "127.0.0.1:0"]
                flags += ["--rocketmq-broker-name", name, "--rocketmq-name-servers", names.address]
                addresses[name] = opened.enter_context(running(folder, flags))["rocketmq_broker"]
            with Wire(names.address) as wire:
                wait_for(wire, "TBW102", {name: {"0": address} for name, address in addresses.items()})
                for address in addresses.values():
                    with Wire(address) as broker:
                        broker.done(17, {"topic": "both", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6})
                wait_for(wire, "both", {name: {"0": address} for name, address in addresses.items()})
            offsets = [send_with_client(names.address, "both", f"{number}") for number in range(8)]
            found = []
            for address in addresses.values():
                with Wire(address) as broker:
                    found.append(int(broker.done(30, {"topic": "both", "queueId": 0})["offset"]))
            assert sum(found) == len(offsets)
        with Wire(names.address) as wire:
            wait_for(wire, "both", {})
    finally:
        names.kill()
