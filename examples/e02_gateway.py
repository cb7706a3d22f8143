"""E2, RabbitMQ clients: a burst waits in a queue; the back end takes it at its pace, late requests are dropped.

A gateway puts each request into a queue instead of calling the back end. A request that has waited longer than its time
to live is not delivered; it is dead-lettered to a queue from which its sender can be notified. If one consumer does not
keep up, another is added, and neither the gateway nor the first consumer changes. Needs TRIMQ_AMQP."""

from __future__ import annotations

import os
import time
from typing import Any

import pika

HOST, _, PORT = os.environ["TRIMQ_AMQP"].rpartition(":")
PATIENCE_S = 20

BURST = 40
WORK_S = 0.005  # duration of one request in the back end
TOO_LATE_MS = 100


def connect() -> Any:
    return pika.BlockingConnection(pika.ConnectionParameters(HOST, int(PORT), socket_timeout=PATIENCE_S))


def open_gateway(channel: Any) -> None:
    channel.queue_declare("e02.late", durable=True)
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "e02.late"}
    channel.queue_declare("e02.requests", durable=True, arguments=arguments)
    channel.confirm_delivery()


def accept(channel: Any, name: str, patience_ms: int = 60_000) -> None:
    """Publishes a request with a time to live. On return it is on the broker's disk."""
    properties = pika.BasicProperties(delivery_mode=2, expiration=str(patience_ms))
    channel.basic_publish("", "e02.requests", name.encode(), properties, mandatory=True)


class BackEnd:
    """Takes one request at a time."""

    def __init__(self) -> None:
        self.channel = connect().channel()
        self.channel.basic_qos(prefetch_count=1)
        self.done: list[str] = []
        self.channel.basic_consume("e02.requests", self._work)

    def _work(self, channel: Any, method: Any, _properties: Any, body: bytes) -> None:
        time.sleep(WORK_S)
        self.done.append(body.decode())
        channel.basic_ack(method.delivery_tag)

    def go_on(self) -> None:
        self.channel.connection.process_data_events(0.01)

    def close(self) -> None:
        self.channel.connection.close()


def serve(back_ends: list[BackEnd], count: int) -> None:
    """Runs the back ends until `count` requests are done."""
    deadline = time.monotonic() + PATIENCE_S
    while sum(len(back_end.done) for back_end in back_ends) < count:
        if time.monotonic() > deadline:
            raise TimeoutError("the back ends did not finish in time")
        for back_end in back_ends:
            back_end.go_on()


def drained(channel: Any, queue: str, count: int) -> list[str]:
    found: list[str] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(found) < count and time.monotonic() < deadline:
        _, _, body = channel.basic_get(queue, auto_ack=True)
        if body is not None:
            found.append(body.decode())
    return found


def main() -> None:
    gateway = connect().channel()
    open_gateway(gateway)

    burst = [f"request {number}" for number in range(BURST)]
    for name in burst:
        accept(gateway, name)
    first = BackEnd()
    serve([first], 1)
    second = BackEnd()  # the gateway does not know of it
    serve([first, second], BURST)
    assert sorted(first.done + second.done) == sorted(burst), (first.done, second.done)
    assert second.done, "the second back end received nothing"
    print(f"a burst of {BURST} was accepted; two back ends processed {len(first.done)} and {len(second.done)} of it")
    first.close()
    second.close()

    for name in ("late 0", "late 1"):
        accept(gateway, name, TOO_LATE_MS)
    late = drained(gateway, "e02.late", 2)  # without a consumer they expire
    accept(gateway, "in time")
    third = BackEnd()
    serve([third], 1)
    assert late == ["late 0", "late 1"], late
    assert third.done == ["in time"], third.done
    third.close()
    print(f"{len(late)} requests waited longer than {TOO_LATE_MS} ms: dead-lettered; their senders can be notified")
    gateway.connection.close()


if __name__ == "__main__":
    main()
