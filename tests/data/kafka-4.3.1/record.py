"""Fills the topics of the partition folders that are kept beside this file, on a running Kafka: record.py HOST:PORT.

Run it against an empty Kafka 4.3.1 that was started with log.cleaner.backoff.ms=300 and log.initial.task.delay.ms=100.
Wait until the cleaner has left two segments of `profiles`, stop Kafka, and copy the folders without the files that end
in `.deleted`. For `cut-0`, start it again, run `record.py HOST:PORT cut`, and kill Kafka with signal 9. Beside each
folder, store the output of `org.apache.kafka.tools.DumpLogSegments --deep-iteration --print-data-log --files …`, run
inside the folder on all of its files in the order of their names.
"""

import sys
import time

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

BASE_MS = int(time.time() * 1000)  # near the time of transaction markers, which Kafka stamps itself
SMALL = {"index.interval.bytes": "200", "segment.ms": "60000", "segment.jitter.ms": "0", "retention.ms": "-1"}


def create(address: str, name: str, **settings: str) -> None:
    admin = AdminClient({"bootstrap.servers": address})
    configs = SMALL | {key.replace("_", "."): value for key, value in settings.items()}
    for future in admin.create_topics([NewTopic(name, 1, 1, config=configs)]).values():
        future.result()


def producer(address: str, **settings: str) -> Producer:
    return Producer({"bootstrap.servers": address} | {key.replace("_", "."): value for key, value in settings.items()})


def record_orders(address: str) -> None:
    """Records with every codec, headers, null keys and bodies, in three segments, idempotent and not."""
    create(address, "orders")
    for minute, codec in enumerate(["none", "gzip", "snappy", "lz4", "zstd", "none"]):
        sender = producer(address, compression_type=codec, linger_ms="20", enable_idempotence=str(minute > 0).lower())
        for number in range(12):
            stamp = BASE_MS + minute * 25_000 + (number * 7 % 12) * 100
            key = None if number % 5 == 0 else f"order-{number}"
            body = None if number % 7 == 6 else f"{codec} {number} ".encode() * (1 + number)
            headers = [("codec", codec.encode()), ("nothing", None), ("codec", b"again")] if number % 3 == 0 else None
            sender.produce("orders", body, key, headers=headers, timestamp=stamp)
            if number % 4 == 3:
                sender.flush()
    print("orders")


def record_payments(address: str) -> None:
    """Transactions that overlap: committed, aborted, aborted across two segments, and plain records between them."""
    create(address, "payments")
    plain = producer(address, linger_ms="0")
    names = ["first", "second", "third"]
    senders = [producer(address, transactional_id=name, linger_ms="0") for name in names]
    for sender in senders:
        sender.init_transactions()

    def send(sender: Producer, text: str, second: int) -> None:
        sender.produce("payments", text * 8, text, timestamp=BASE_MS + second * 1000)
        sender.flush()

    for turn in range(4):
        second = turn * 40
        for index, sender in enumerate(senders):
            sender.begin_transaction()
            send(sender, f"{names[index]} {turn} a", second + index)
        send(plain, f"plain {turn}", second + 5)
        for index, sender in enumerate(senders):
            send(sender, f"{names[index]} {turn} b", second + 30 - index)
        for index, sender in enumerate(senders if turn % 2 else reversed(senders)):
            if (turn + index) % 2:
                sender.commit_transaction()
            else:
                sender.abort_transaction()
    print("payments")


def record_profiles(address: str) -> None:
    """Compacted: keys written many times, tombstones, a compressed segment, aborted records, emptied batches."""
    create(
        address, "profiles", cleanup_policy="compact", min_cleanable_dirty_ratio="0.01", delete_retention_ms="86400000"
    )
    for minute, codec in enumerate(["none", "zstd", "none", "none"]):
        sender = producer(address, compression_type=codec, linger_ms="20", enable_idempotence=str(minute < 2).lower())
        for number in range(30):
            body = None if number % 10 == 9 else f"{codec} {minute} {number}" * 3
            key = f"only-{minute}-{number}" if number % 7 == 3 and number < 20 else f"profile-{number % 11}"
            sender.produce("profiles", body, key, timestamp=BASE_MS + minute * 70_000 + number)
            if number % 10 == 9:
                sender.flush()
        change_of_mind = producer(address, transactional_id=f"mind-{minute}", linger_ms="0")
        change_of_mind.init_transactions()
        for verdict in (change_of_mind.commit_transaction, change_of_mind.abort_transaction):
            change_of_mind.begin_transaction()
            name = f"{verdict.__name__} {minute}"
            change_of_mind.produce("profiles", name, name, timestamp=BASE_MS + minute * 70_000 + 40)
            change_of_mind.flush()  # otherwise an abort drops the unsent records
            verdict()
    print("profiles: wait for the cleaner")


def record_stamped(address: str) -> None:
    """Batches with log append time."""
    create(address, "stamped", message_timestamp_type="LogAppendTime")
    sender = producer(address, linger_ms="20", compression_type="lz4")
    for number in range(12):
        sender.produce("stamped", f"stamped {number}" * 5, timestamp=BASE_MS)
        if number % 3 == 2:
            sender.flush()
            time.sleep(0.005)
    print("stamped")


def record_cut(address: str) -> None:
    """State for a kill: the indexes of the active segment are still preallocated, one transaction is open."""
    create(address, "cut", segment_index_bytes="2400")
    plain = producer(address, linger_ms="0")
    open_ended = producer(address, transactional_id="open-ended", linger_ms="0")
    open_ended.init_transactions()
    for number in range(20):
        if number == 8:
            open_ended.begin_transaction()
        sender = open_ended if number > 8 and number % 3 == 0 else plain
        sender.produce("cut", f"cut {number} " * 6, timestamp=BASE_MS + number * 5000)
        sender.flush()
    print("cut: now kill")


if __name__ == "__main__":
    where = sys.argv[1]
    if sys.argv[2:] == ["cut"]:
        record_cut(where)
    else:
        for record in (record_orders, record_payments, record_profiles, record_stamped):
            record(where)
