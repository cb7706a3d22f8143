"""Producers over HTTP: those of RocketMQ while they are connected, those of Kafka while streams remember them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from confluent_kafka import Producer
from server.http.test_queues import PATIENCE_S, ROOT, ask, with_users

from tools.rocketmq_wire import Wire
from trimq.clock import monotonic_seconds
from trimq.testing import Broker


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


def listed(broker: Broker, protocol: str) -> list[dict[str, Any]]:
    status, answer = ask(broker, "GET", "/api/producers")
    assert status == 200
    return [found for found in answer["producers"] if found.pop("protocol") == protocol]


def heartbeat(wire: Wire, client: str, *groups: str) -> None:
    produced = [{"groupName": group} for group in groups]
    body = json.dumps({"clientID": client, "producerDataSet": produced, "consumerDataSet": []}).encode()
    assert wire.ask(34, {}, body)[0]["code"] == 0


def test_a_rocketmq_producer_is_listed_until_its_connection_ends(broker: Broker) -> None:
    assert listed(broker, "rocketmq") == []
    with Wire(broker.addresses["rocketmq_broker"]) as stays:
        heartbeat(stays, "10.0.0.1@7", "cashiers")
        with Wire(broker.addresses["rocketmq_broker"]) as killed:
            heartbeat(killed, "10.0.0.2@8", "cashiers", "waiters")
            found = {(each["group"], each["client_id"]) for each in listed(broker, "rocketmq")}
            cashiers, waiters = ("cashiers", "10.0.0.2@8"), ("waiters", "10.0.0.2@8")
            assert found == {("cashiers", "10.0.0.1@7"), cashiers, waiters}
        give_up = monotonic_seconds() + PATIENCE_S
        while len(left := listed(broker, "rocketmq")) > 1:
            assert monotonic_seconds() < give_up
        (producer,) = left
        assert 0 <= producer.pop("heartbeat_age_ms") < PATIENCE_S * 1000
        assert producer.pop("host").startswith("127.0.0.1:")
        assert (producer["group"], producer["client_id"]) == ("cashiers", "10.0.0.1@7")
        assert producer.keys() == {"group", "client_id", "language", "version"}


def test_kafka_producers_with_an_id_are_listed_with_their_transactions(broker: Broker) -> None:
    broker.create_topic("orders", 1)
    address = {"bootstrap.servers": broker.addresses["kafka"]}
    with ExitStack() as stack:
        plain = Producer(address | {"enable.idempotence": False})
        idempotent = Producer(address | {"enable.idempotence": True})
        transactional = Producer(address | {"transactional.id": "till-1"})
        transactional.init_transactions(PATIENCE_S)
        transactional.begin_transaction()
        stack.callback(transactional.abort_transaction, PATIENCE_S)
        for producer in (plain, idempotent, transactional):
            producer.produce("orders", b"1")
            assert producer.flush(PATIENCE_S) == 0
        found = sorted(listed(broker, "kafka"), key=lambda each: each["transactional_id"] or "")
        assert [(each["topic"], each["stream"], each["transactional_id"], each["open_from"]) for each in found] == [
            ("orders", 0, None, None),
            ("orders", 0, "till-1", 2),
        ]
        assert all(each["producer_id"] >= 0 and each["epoch"] >= 0 for each in found)
        assert all(each["last_ms"] > 1_600_000_000_000 for each in found)


def test_only_administrators_see_producers(broker: Broker) -> None:
    assert ask(broker, "POST", "/api/producers")[0] == 405
    with_users(broker)
    assert ask(broker, "GET", "/api/producers")[0] == 401
    assert ask(broker, "GET", "/api/producers", login=("alice", "hers"))[0] == 403
    assert ask(broker, "GET", "/api/producers", login=ROOT)[0] == 200
