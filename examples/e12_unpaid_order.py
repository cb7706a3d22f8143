"""E12, RocketMQ: an order that is not paid within half an hour is cancelled by a delayed message.

Each order sends a message with delay level 16, which is 30 minutes. On delivery the consumer checks if the order was
paid. No table is searched for old orders. The broker runs in this process, so that its clock can be advanced."""

from __future__ import annotations

import threading

from rocketmq.client import Message, Producer, PushConsumer, RecvMessage

from trimq.testing import Broker

TOPIC = "order-timeouts"
HALF_AN_HOUR = 16
PATIENCE_S = 30


class Shop:
    def __init__(self, count: int) -> None:
        self.states = {f"order {number}": "open" for number in range(count)}
        self._all_looked_at = threading.Semaphore(0)

    def pay(self, order: str) -> None:
        self.states[order] = "paid"

    def time_out(self, message: RecvMessage) -> None:
        order = message.body.decode()
        if self.states[order] == "open":
            self.states[order] = "cancelled"
        self._all_looked_at.release()

    def wait(self) -> None:
        for order in self.states:
            assert self._all_looked_at.acquire(timeout=PATIENCE_S), f"waited for {order}"


def announce(names: str, shop: Shop) -> None:
    producer = Producer("shop")
    producer.set_namesrv_addr(names)
    producer.start()
    for order in shop.states:
        message = Message(TOPIC)
        message.set_body(order)
        message.set_delay_time_level(HALF_AN_HOUR)
        producer.send_sync(message)
    producer.shutdown()


def main() -> None:
    with Broker() as broker:
        names, shop = broker.addresses["rocketmq"], Shop(4)
        announce(names, shop)
        consumer = PushConsumer("cashier")
        consumer.set_namesrv_addr(names)
        consumer.subscribe(TOPIC, shop.time_out)
        consumer.start()
        try:
            broker.advance("29m")
            shop.pay("order 1")
            shop.pay("order 3")
            print(f"after 29 minutes: {shop.states}")
            assert "cancelled" not in shop.states.values()
            broker.advance("1m")
            shop.wait()
            print(f"after 30 minutes: {shop.states}")
        finally:
            consumer.shutdown()
        assert shop.states == {"order 0": "cancelled", "order 1": "paid", "order 2": "cancelled", "order 3": "paid"}


if __name__ == "__main__":
    main()
