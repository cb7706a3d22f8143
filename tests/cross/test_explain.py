"""`trimq explain` shows what the real clients receive."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from confluent_kafka import TopicPartition
from cross.clients import described, kafka_consumer, receive

from tools.rocketmq_wire import Wire
from trimq.cli.main import main
from trimq.formats.rocketmq_unit.properties import read_properties
from trimq.testing import Broker


def test_the_views_are_what_the_clients_receive(broker: Broker, capsys: pytest.CaptureFixture[str]) -> None:
    broker.create_topic("orders", 1)
    broker.send("orders", b"body", key=b"k", headers={"trace": b"t", "rmq.TAGS": b"paid", "sig": b"\xff"})
    assert main(["explain", "orders@0", "--json", "--http", broker.http]) == 0
    told = json.loads(capsys.readouterr().out)
    with Wire(broker.addresses["rocketmq_broker"]) as wire:
        (unit,) = wire.pull("orders")
    properties = read_properties(unit.properties)
    kept = properties.pop("TRIMQ_KEPT")
    assert told["views"]["rocketmq"]["properties"] == {**properties, "TRIMQ_KEPT": f"{len(kept)} characters"}
    assert told["views"]["amqp"]["properties"]["type"] == "paid"
    assert told["neutral"]["kept"]["headers"] == [["trace", "t"], ["rmq.TAGS", "paid"], ["sig", "0xff"]]
    with kafka_consumer(broker.kafka) as consumer:
        consumer.assign([TopicPartition("orders", 0, 0)])
        value, key, _ = described(receive(consumer, 1)[0])
    assert (value, key) == (b"body", told["views"]["kafka"]["key"].encode())


@pytest.mark.parametrize("home", ["commit-log", "queue"])
def test_a_message_of_each_layout_is_explained(
    broker: Broker, capsys: pytest.CaptureFixture[str], home: str, tmp_path: Path
) -> None:
    if home == "queue":
        broker.create_queue("orders")
    else:
        broker.create_topic("orders", 1, home=home)
    broker.send("orders", b"body", headers={"colour": b"red"})
    assert main(["explain", "orders/0@0", "--as", "kafka", "--http", broker.http]) == 0
    shown = capsys.readouterr().out
    assert "headers.colour" in shown
    assert "amqp" not in shown.split("\n\n")[-1].split("\n")[0]


def test_a_place_without_a_message_is_told(broker: Broker) -> None:
    broker.create_topic("orders", 1)
    broker.send("orders", b"1")
    with pytest.raises(HTTPError) as told:
        urlopen(f"http://{broker.http.removeprefix('http://')}/api/explain?topic=orders&offset=1", timeout=10)
    with told.value:
        assert told.value.code == 404
        assert b"orders/0@1" in told.value.read()
