"""E15, RocketMQ: a pull is held for up to 15 s; a message sent meanwhile arrives within milliseconds.

The consumer sends one pull and allows the broker to answer later: waiting costs no requests and adds no delay. Needs
TRIMQ_ROCKETMQ_BROKER, the broker's address."""

from __future__ import annotations

import os
import threading
import time
import uuid

from tools.rocketmq_wire import Wire
from trimq.formats.rocketmq_unit.unit import iterate_units

BROKER = os.environ["TRIMQ_ROCKETMQ_BROKER"]
TOPIC = f"e15-{uuid.uuid4().hex[:8]}"
HOLD_S = 15
SENT_AFTER_S = 5
MAY_BE_HELD, NAMES_ITS_TAGS = 2, 4


def main() -> None:
    with Wire(BROKER) as consumer, Wire(BROKER) as producer:
        producer.create_topic(TOPIC, 1)
        sent: list[float] = []

        def send() -> None:
            sent.append(time.perf_counter())
            producer.send(TOPIC, b"at last")

        timer = threading.Timer(SENT_AFTER_S, send)
        timer.start()
        started = time.perf_counter()
        queue = {"consumerGroup": TOPIC, "topic": TOPIC, "queueId": 0, "queueOffset": 0, "maxMsgNums": 32}
        held = {"sysFlag": MAY_BE_HELD | NAMES_ITS_TAGS, "suspendTimeoutMillis": HOLD_S * 1000, "subscription": "*"}
        header, body = consumer.ask(11, {**queue, **held, "commitOffset": 0, "subVersion": 0})
        arrived = time.perf_counter()
        timer.join()

    print(f"the pull may be held {HOLD_S} s; the message was sent after {sent[0] - started:.1f} s")
    print(f"it arrived {(arrived - sent[0]) * 1000:.1f} ms later, in answer to the one pull")
    assert header["code"] == 0, header
    assert [bytes(unit.body) for unit in iterate_units(body)] == [b"at last"]
    assert 0 < arrived - sent[0] < 1, arrived - sent[0]


if __name__ == "__main__":
    main()
