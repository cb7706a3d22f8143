"""Sends and reads a message with RocketMQ's Python client over gRPC, with signed calls:
`grpc_client.py ADDRESS - user=… secret=…`. Prints one JSON object."""

from __future__ import annotations

import json
import os
import sys
import time

import rocketmq
from rocketmq.v5.client import ClientConfiguration, Credentials

# Two packages share this name, and the other one's file may be the installed one.
rocketmq.ClientConfiguration = ClientConfiguration

from rocketmq.v5.consumer import SimpleConsumer  # noqa: E402
from rocketmq.v5.model import FilterExpression, Message  # noqa: E402
from rocketmq.v5.producer import Producer  # noqa: E402

PATIENCE_S = 30


def main(address: str, user: str, secret: str) -> None:
    configuration = ClientConfiguration(address, Credentials(user, secret))
    read: list[str] = []
    try:
        producer = Producer(configuration, ("orders",))
        producer.startup()
        message = Message()
        message.topic, message.body = "orders", b"hello"
        producer.send(message)
        sent = "ok"
    except Exception as error:
        sent = f"{type(error).__name__}: {error}"
    if sent == "ok":
        consumer = SimpleConsumer(configuration, "readers", {"orders": FilterExpression()}, 5)
        consumer.startup()
        until_s = time.monotonic() + PATIENCE_S
        while not read and time.monotonic() < until_s:
            for found in consumer.receive(16, 15) or ():
                read.append(found.body.decode())
                consumer.ack(found)
    print(json.dumps({"sent": sent, "read": read}), flush=True)
    os._exit(0)  # its threads would go on


options = dict(word.split("=", 1) for word in sys.argv[3:])
main(sys.argv[1], options["user"], options["secret"])
