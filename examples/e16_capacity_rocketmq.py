"""E16, Python client: T1 and T2 of a handler are measured, threads and nodes are computed, and the backlog drains

Needs TRIMQ_ROCKETMQ, the name server's address.
"""

from __future__ import annotations

import hashlib
import os
import time
import uuid

from trimq.client import Client, Message, Start
from trimq.client.planning import capacity, measure, seconds_to_drain
from trimq.client.sync import BlockingReceived

NAME_SERVER = os.environ["TRIMQ_ROCKETMQ"]
TOPIC = f"e16-{uuid.uuid4().hex[:8]}"
BACKLOG = 400
CORES = 1  # one Python process keeps one core busy
ROUNDS = 1000  # of hashing: the processor time of a message
WAIT_S = 0.010  # like a database query
PEAK_RATE = 5000.0


def handle(body: bytes) -> None:
    """Processes one message: some processor time, and mostly waiting for another system."""
    for _ in range(ROUNDS):
        body = hashlib.sha256(body).digest()
    time.sleep(WAIT_S)


def drain(mq: Client, group: str, threads: int) -> float:
    """Reads the backlog with so many threads, and returns the rate in messages per second."""
    done: list[float] = []
    with mq.consumer(group, TOPIC, start=Start.FIRST) as consumer:

        def work(message: BlockingReceived) -> None:
            handle(message.body)
            done.append(time.monotonic())
            if len(done) == BACKLOG:
                consumer.stop()

        began = time.monotonic()
        consumer.run(work, concurrency=threads)
    return BACKLOG / (done[-1] - began)


times = measure(handle, [b"order"] * 20)
with Client(NAME_SERVER) as mq:
    for number in range(0, BACKLOG, 100):
        mq.send_all(TOPIC, [Message(b"order %d" % each) for each in range(number, number + 100)])
    plan = capacity(CORES, times.busy_ms, times.waiting_ms, PEAK_RATE)
    print(f"T1 {times.busy_ms:.2f} ms, T2 {times.waiting_ms:.2f} ms: {plan.threads} threads keep a core busy")
    slow, fast = drain(mq, "e16-one", 1), drain(mq, "e16-many", min(plan.threads, 32))

assert fast > 2 * slow, (slow, fast)
nodes = capacity(CORES, times.busy_ms, times.waiting_ms, PEAK_RATE, node_rate=fast).nodes
wait = seconds_to_drain(10 * BACKLOG, fast, fast / 2)
print(f"1 thread: {slow:.0f} messages/s, {min(plan.threads, 32)} threads: {fast:.0f} messages/s")
print(f"a peak of {PEAK_RATE:.0f} messages/s needs {nodes} nodes; {10 * BACKLOG} messages drain in {wait:.0f} s")
