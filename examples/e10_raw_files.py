"""E10, RocketMQ: reads the files directly: messages, consume queues and key index, and a pull without a broker.

The commit log holds the messages of all topics one after the other. A consume queue is a list of 20-byte entries, each
with the position of a message. The index finds positions by key: a slot by the key's hash, and a chain of entries
behind it. The broker runs in this process, and is stopped before its files are read."""

from __future__ import annotations

import struct
import tempfile
from pathlib import Path

from tools.rocketmq_wire import Wire, position_of
from trimq.testing import Broker

TOPIC = "raw"
COUNT = 10
SLOTS = 250  # a fourth of the keys that fit into a file
HEADER, SLOT, ENTRY, QUEUE_ENTRY = 40, 4, 20, 20


def write(folder: str) -> list[int]:
    """Sends the messages and returns their positions, which the message ids contain."""
    kept = Broker(folder=folder, rocketmq_index_keys=4 * SLOTS)
    with kept as broker, Wire(broker.addresses["rocketmq_broker"]) as wire:
        wire.create_topic(TOPIC, 1)
        sent = [wire.send(TOPIC, b"body %d" % number, TAGS="t", KEYS=f"k{number % 4}") for number in range(COUNT)]
        return [position_of(each["msgId"]) for each in sent]


def java_hash(text: str) -> int:
    value = 0
    for unit in struct.unpack(f"<{len(text.encode('utf-16-le')) // 2}H", text.encode("utf-16-le")):
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


def read_body(log: bytes, position: int) -> bytes:
    """Returns the body of a message with IPv4 addresses: the fields before the body always take 84 bytes."""
    (length,) = struct.unpack_from(">i", log, position + 84)
    return log[position + 88 : position + 88 + length]


def find(index: bytes, log: bytes, key: str) -> list[bytes]:
    """Returns the bodies of the messages with this key, the newest first."""
    hashed = abs(java_hash(f"{TOPIC}#{key}"))
    (number,) = struct.unpack_from(">i", index, HEADER + SLOT * (hashed % SLOTS))
    bodies = []
    while number:
        at = HEADER + SLOT * SLOTS + ENTRY * number
        found, position, _, number = struct.unpack_from(">iqii", index, at)
        if found == hashed:
            bodies.append(read_body(log, position))
    return bodies


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="trimq-e10-") as folder:
        positions = write(folder)
        (log_path,) = Path(folder, "store", "commitlog").iterdir()
        (queue_path,) = Path(folder, "store", "consumequeue", TOPIC, "0").iterdir()
        (index_path,) = Path(folder, "store", "index").iterdir()
        log, queue, index = log_path.open("rb").read(1 << 20), queue_path.read_bytes(), index_path.read_bytes()

    lengths = [struct.unpack_from(">i", log, position)[0] for position in positions]
    print(f"commit log {log_path.name}: L(m+1) = L(m) + len(m): {positions[:3]}…, lengths {lengths[:3]}…")
    assert all(positions[m + 1] == positions[m] + lengths[m] for m in range(COUNT - 1)), (positions, lengths)

    entries = [struct.unpack_from(">qiq", queue, QUEUE_ENTRY * m) for m in range(COUNT)]
    print(f"queue {queue_path.name}: entry m at byte 20 m: {entries[:2]}…")
    assert entries == [(positions[m], lengths[m], java_hash("t")) for m in range(COUNT)], entries

    (count,) = struct.unpack_from(">i", index, HEADER - 4)
    print(f"index {index_path.name}: {count - 1} entries; entry i at byte {HEADER} + 4 · {SLOTS} + 20 i, from 1 on")
    print(f"  by key k1: {find(index, log, 'k1')}")
    assert find(index, log, "k1") == [b"body 9", b"body 5", b"body 1"]

    offset = 6
    position, _, _ = struct.unpack_from(">qiq", queue, QUEUE_ENTRY * offset)
    print(
        f"pull of offset {offset}: queue byte {QUEUE_ENTRY * offset}, log byte {position}: {read_body(log, position)!r}"
    )
    assert read_body(log, position) == b"body 6"


if __name__ == "__main__":
    main()
