"""E2, RocketMQ: a burst waits in a topic; the back end takes it at its pace, late requests are dropped.

A gateway sends each request to a topic instead of calling the back end, with the property TRIMQ_TTL_MS: the time to
live of the request. A request that has waited longer is not delivered. If one consumer does not keep up, another is
added, and neither the gateway nor the first consumer changes. The gateway uses the C++ client of RocketMQ 4, the back
ends use the gRPC client of RocketMQ 5. The broker runs in this process, so that its clock can be advanced."""

from __future__ import annotations

import json
import time
from typing import Any

import rocketmq
from rocketmq.client import Message, Producer
from rocketmq.v5.client import ClientConfiguration, Credentials

# Two packages share this name; the wrong one may be imported.
rocketmq.ClientConfiguration = ClientConfiguration

from rocketmq.v5.consumer import SimpleConsumer  # noqa: E402
from rocketmq.v5.model import FilterExpression  # noqa: E402

from tools.rocketmq_wire import Wire  # noqa: E402
from trimq.testing import Broker  # noqa: E402

TOPIC, GROUP = "e02-requests", "e02-back-end"
PATIENCE_S = 30
BURST = 40
AT_ONCE = 5
INVISIBLE_S = 60
PATIENT_MS, HURRIED_MS = 3_600_000, 2000


class Gateway:
    def __init__(self, names: str) -> None:
        self._producer = Producer("e02-gateway")
        self._producer.set_namesrv_addr(names)
        self._producer.start()

    def accept(self, name: str, patience_ms: int = PATIENT_MS) -> None:
        """Sends a request. On return it is on the broker's disk."""
        message = Message(TOPIC)
        message.set_body(name)
        message.set_property("TRIMQ_TTL_MS", str(patience_ms))
        self._producer.send_sync(message)

    def close(self) -> None:
        self._producer.shutdown()


class BackEnd:
    """Takes a few requests at a time."""

    def __init__(self, endpoints: str) -> None:
        configuration = ClientConfiguration(endpoints, Credentials(), request_timeout=10)
        self._consumer: Any = SimpleConsumer(configuration, GROUP, {TOPIC: FilterExpression()}, await_duration=1)
        self._consumer.startup()
        self.done: list[str] = []

    def work(self) -> None:
        for request in self._consumer.receive(AT_ONCE, INVISIBLE_S) or ():
            self.done.append(request.body.decode())
            self._consumer.ack(request)

    def close(self) -> None:
        self._consumer.shutdown()


def serve(back_ends: list[BackEnd], count: int) -> None:
    """Runs the back ends until `count` requests are done."""
    deadline = time.monotonic() + PATIENCE_S
    while sum(len(back_end.done) for back_end in back_ends) < count:
        if time.monotonic() > deadline:
            raise TimeoutError("the back ends did not finish in time")
        for back_end in back_ends:
            back_end.work()


def main() -> None:
    with Broker(rocketmq_grpc_listen="127.0.0.1:0") as broker:
        with Wire(broker.addresses["rocketmq_broker"]) as wire:
            wire.create_topic(TOPIC, 1, message_type="NORMAL")
            wire.done(200, body=json.dumps({"groupName": GROUP}).encode())
        gateway = Gateway(broker.addresses["rocketmq"])
        burst = [f"request {number}" for number in range(BURST)]
        for name in burst:
            gateway.accept(name)
        first = BackEnd(broker.addresses["rocketmq_grpc"])
        serve([first], 1)
        second = BackEnd(broker.addresses["rocketmq_grpc"])  # the gateway does not know of it
        serve([first, second], BURST)
        assert sorted(first.done + second.done) == sorted(burst), (first.done, second.done)
        assert second.done, "the second back end received nothing"
        print(
            f"a burst of {BURST} was accepted; two back ends processed {len(first.done)} and {len(second.done)} of it"
        )
        second.close()

        for name in ("late 0", "late 1"):
            gateway.accept(name, HURRIED_MS)
        broker.advance("2s")  # without a consumer they expire
        gateway.accept("in time", HURRIED_MS)
        first.done.clear()
        serve([first], 1)
        first.work()
        assert first.done == ["in time"], first.done
        print(f"2 requests waited longer than {HURRIED_MS} ms: dropped; a later request was processed in time")
        first.close()
        gateway.close()


if __name__ == "__main__":
    main()
