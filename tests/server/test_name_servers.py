"""Two brokers behind one name server: registered, sent to, dropped when one ends, and back when it returns."""

from __future__ import annotations

import json
from collections.abc import Callable
from time import monotonic
from typing import Any

import pytest

from tools.rocketmq_wire import Wire
from trimq.testing import Broker

PATIENCE_S = 20
BOTH = {"broker-trimq", "second"}


def route(names: str, topic: str) -> dict[str, str]:
    """Returns the addresses of the brokers that have the topic, by name."""
    with Wire(names) as wire:
        header, body = wire.ask(105, {"topic": topic})
    if header["code"]:
        return {}
    return {row["brokerName"]: row["brokerAddrs"]["0"] for row in json.loads(body)["brokerDatas"]}


def wait_for(look: Callable[[], Any], wanted: Any) -> None:
    until = monotonic() + PATIENCE_S
    while (found := look()) != wanted:
        assert monotonic() < until, found


def second(names: str, **settings: Any) -> Broker:
    given = {"rocketmq_broker_name": "second", "rocketmq_listen": "off", "rocketmq_name_servers": names, **settings}
    return Broker(**given)


def test_a_producer_sends_to_both_brokers_of_a_name_server() -> None:
    with Broker() as first, second(first.rocketmq):
        wait_for(lambda: set(route(first.rocketmq, "TBW102")), BOTH)
        for address in route(first.rocketmq, "TBW102").values():
            with Wire(address) as wire:
                wire.done(17, {"topic": "t", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6, "topicSysFlag": 0})
        wait_for(lambda: set(route(first.rocketmq, "t")), BOTH)
        for name, address in route(first.rocketmq, "t").items():
            with Wire(address) as wire:
                assert wire.send("t", name.encode())["queueOffset"] == "0"


@pytest.mark.parametrize("ending", ["stop", "crash"])
def test_a_broker_that_ends_is_dropped_and_registers_again_when_it_is_back(ending: str) -> None:
    with Broker() as first, second(first.rocketmq) as other:
        wait_for(lambda: set(route(first.rocketmq, "TBW102")), BOTH)
        getattr(other, ending)()
        wait_for(lambda: set(route(first.rocketmq, "TBW102")), {"broker-trimq"})
        other.restart()
        wait_for(lambda: set(route(first.rocketmq, "TBW102")), BOTH)


def test_a_broker_connects_again_when_its_name_server_is_back() -> None:
    with Broker() as first, second(first.rocketmq) as other:
        wait_for(lambda: set(route(first.rocketmq, "TBW102")), BOTH)
        first.stop()
        first.restart()
        other.advance("6s", liveness=True)
        wait_for(lambda: set(route(first.rocketmq, "TBW102")), BOTH)


def test_a_broker_starts_and_stops_without_its_name_server() -> None:
    with Broker() as gone:
        address = gone.rocketmq
    with second(address) as other:
        assert "rocketmq_broker" in other.addresses
