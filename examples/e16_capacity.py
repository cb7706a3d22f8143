"""E16, Kafka: T1 and T2 are measured, threads and nodes are computed from them, and the backlog drains.

A worker is busy for T1 and waits for T2 per message. One thread leaves the core idle while it waits; C * (T1 + T2) / T1
threads do not. Both are tried on a backlog, and the rate of one node gives the nodes for a peak. Needs TRIMQ_KAFKA, the
broker's address.
"""

from __future__ import annotations

import hashlib
import os
import time
import uuid
from concurrent.futures import ThreadPoolExecutor

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from trimq.client.planning import capacity, seconds_to_drain

BROKER = os.environ["TRIMQ_KAFKA"]
TOPIC = f"e16-{uuid.uuid4().hex[:8]}"
BACKLOG = 600
CORES = 1  # one Python process keeps one core busy
ROUNDS = 2000  # of hashing: the CPU time of a message
WAIT_S = 0.010  # like a database query
TRIED = 20
PEAK_RATE = 5000.0
PATIENCE_S = 20


def handle(body: bytes) -> bytes:
    """Processes one message: some CPU time, and mostly waiting for another system."""
    for _ in range(ROUNDS):
        body = hashlib.sha256(body).digest()
    time.sleep(WAIT_S)
    return body


def measure() -> tuple[float, float]:
    """Returns T1 and T2 of one message in ms: the CPU time, and the rest."""
    wall, busy = time.perf_counter(), time.thread_time()
    for number in range(TRIED):
        handle(b"%d" % number)
    busy = (time.thread_time() - busy) * 1000 / TRIED
    return busy, (time.perf_counter() - wall) * 1000 / TRIED - busy


def fill() -> None:
    admin = AdminClient({"bootstrap.servers": BROKER})
    for made in admin.create_topics([NewTopic(TOPIC, 1)]).values():
        made.result(PATIENCE_S)
    producer = Producer({"bootstrap.servers": BROKER})
    for number in range(BACKLOG):
        producer.produce(TOPIC, b"order %d" % number)
    assert producer.flush(PATIENCE_S) == 0


def drain(group: str, threads: int, messages: int) -> float:
    """Reads `messages` messages with `threads` threads, commits, and returns the rate in messages a second."""
    consumer = Consumer({"bootstrap.servers": BROKER, "group.id": group, "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition(TOPIC, 0, 0)])
        bodies: list[bytes] = []
        while len(bodies) < messages:
            bodies += [message.value() for message in consumer.consume(messages - len(bodies), PATIENCE_S)]
        began = time.perf_counter()
        with ThreadPoolExecutor(threads) as pool:
            done = list(pool.map(handle, bodies))
        rate = len(done) / (time.perf_counter() - began)
        consumer.commit(offsets=[TopicPartition(TOPIC, 0, messages)], asynchronous=False)
        (committed,) = consumer.committed([TopicPartition(TOPIC, 0)], PATIENCE_S)
        _, end = consumer.get_watermark_offsets(TopicPartition(TOPIC, 0), PATIENCE_S)
        print(f"{group}: {threads} threads, {rate:.0f} messages/s, {end - committed.offset} of {end} left")
        return rate
    finally:
        consumer.close()


def main() -> None:
    busy_ms, waiting_ms = measure()
    sheet = capacity(CORES, busy_ms, waiting_ms, PEAK_RATE)
    print(f"T1 = {busy_ms:.2f} ms, T2 = {waiting_ms:.2f} ms: C * (T1 + T2) / T1 = {sheet.threads} threads")
    fill()
    alone = drain("one-thread", 1, BACKLOG // 10)
    together = drain("computed", sheet.threads, BACKLOG)
    nodes = capacity(CORES, busy_ms, waiting_ms, PEAK_RATE, node_rate=together).nodes
    print(f"a peak of {PEAK_RATE:.0f} messages/s needs {nodes} nodes of {together:.0f} messages/s each")
    left_s = seconds_to_drain(BACKLOG, together * (nodes + 1), PEAK_RATE)
    assert left_s is not None, "more is read than arrives"
    print(f"with one more node a backlog of {BACKLOG} messages drains in {left_s:.1f} s, at the peak")
    assert together > alone, (together, alone)
    assert nodes * together >= PEAK_RATE


if __name__ == "__main__":
    main()
