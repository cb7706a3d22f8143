"""E22, Kafka, one broker: a connection lost under acks 0, 1 and all; resend with and without idempotence.

The producer connects through a small relay that cuts the connection once: before the broker receives the message, or
after it has stored the message and before the producer receives the response. Under acks 0 the first cut loses the
message unnoticed; the second duplicates it, unless the producer is idempotent. Needs TRIMQ_KAFKA, the broker's
address."""

from __future__ import annotations

import os
import socket
import struct
import threading
import time
import uuid

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

BROKER = os.environ["TRIMQ_KAFKA"]
HOST, _, PORT = BROKER.rpartition(":")
RUN = uuid.uuid4().hex[:8]
PRODUCE = 0  # API key
PATIENCE_S = 20


class Relay:
    """Forwards frames between a client and the broker, and drops one produce request or its response."""

    def __init__(self, loses: str) -> None:
        self._loses = loses
        # The dropped request, or its response: correlation ids are counted per connection.
        self._lost: tuple[socket.socket, int] | None = None
        self.produce_requests = 0
        self._server = socket.create_server((HOST, 0))
        self.port = int(self._server.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            client, _ = self._server.accept()
            broker = socket.create_connection((HOST, int(PORT)))
            for pass_on in (self._pass_requests, self._pass_answers):
                threading.Thread(target=pass_on, args=(client, broker), daemon=True).start()

    def _pass_requests(self, client: socket.socket, broker: socket.socket) -> None:
        while frame := read_frame(client):
            kind, _, correlation = struct.unpack_from(">hhi", frame, 4)
            self.produce_requests += kind == PRODUCE
            if kind == PRODUCE and self._lost is None:
                self._lost = client, correlation
                if self._loses == "request":
                    break
            broker.sendall(frame)
        cut(client, broker)

    def _pass_answers(self, client: socket.socket, broker: socket.socket) -> None:
        # The client connects to the advertised address: that must be the relay too.
        advertised, relayed = (HOST.encode() + struct.pack(">i", port) for port in (int(PORT), self.port))
        while frame := read_frame(broker):
            (correlation,) = struct.unpack_from(">i", frame, 4)
            if (client, correlation) == self._lost and self._loses == "answer":
                break
            client.sendall(frame.replace(advertised, relayed))
        cut(client, broker)


def read_frame(source: socket.socket) -> bytes:
    """Returns the next frame with its length; empty at the end of the connection."""
    try:
        size = source.recv(4, socket.MSG_WAITALL)
        body = source.recv(struct.unpack(">i", size)[0], socket.MSG_WAITALL) if len(size) == 4 else b""
    except OSError:
        return b""
    return size + body if body else b""


def cut(*ends: socket.socket) -> None:
    for end in ends:
        try:
            end.shutdown(socket.SHUT_RDWR)
        except OSError:
            continue  # the other direction has closed it already


def send_through(relay: Relay, topic: str, settings: dict[str, object]) -> bool:
    """Sends one message. Returns True if the producer reports it delivered."""
    errors: list[KafkaError | None] = []

    def hear(error: KafkaError | None, _: Message) -> None:
        errors.append(error)

    quiet = {"log_level": 0, "reconnect.backoff.ms": 50, "linger.ms": 0}
    producer = Producer({"bootstrap.servers": f"{HOST}:{relay.port}", **quiet, **settings})
    producer.produce(topic, b"order 1 paid", on_delivery=hear)
    if producer.flush(PATIENCE_S):
        raise TimeoutError("the message was neither delivered nor failed")
    return errors == [None]


def count_stored(topic: str) -> int:
    """Returns the number of messages in the topic, read directly from the broker."""
    settings = {"bootstrap.servers": BROKER, "group.id": topic, "enable.auto.commit": False}
    consumer = Consumer(settings | {"enable.partition.eof": True, "fetch.wait.max.ms": 50})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        count = 0
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            message = consumer.poll(0.1)
            if message is None:
                continue
            if message.error() is None:
                count += 1
            elif message.error().code() == KafkaError._PARTITION_EOF:
                return count
            else:
                raise RuntimeError(message.error().str())
        raise TimeoutError("did not see the end of the topic")
    finally:
        consumer.close()


def main() -> None:
    cases: list[tuple[str, str, bool, int]] = [  # dropped frame, acks, idempotent, messages stored
        ("request", "0", False, 0),
        ("request", "1", False, 1),
        ("request", "all", False, 1),
        ("answer", "1", False, 2),
        ("answer", "all", False, 2),
        ("answer", "all", True, 1),
    ]
    topics = [f"e22-{RUN}-{number}" for number in range(len(cases))]
    admin = AdminClient({"bootstrap.servers": BROKER})
    for made in admin.create_topics([NewTopic(topic, 1) for topic in topics]).values():
        made.result(PATIENCE_S)
    for topic, (loses, acks, idempotent, expected) in zip(topics, cases, strict=True):
        relay = Relay(loses)
        believed = send_through(relay, topic, {"acks": acks, "enable.idempotence": idempotent})
        stored = count_stored(topic)
        kind = "idempotent" if idempotent else "plain"
        print(f"{loses:<7} lost, acks {acks:<3}, {kind:<10}: sent {relay.produce_requests}, stored {stored} times")
        assert believed, "the producer does not report the message as delivered"
        assert relay.produce_requests == (1 if acks == "0" else 2), relay.produce_requests
        assert stored == expected, (stored, expected)


if __name__ == "__main__":
    main()
