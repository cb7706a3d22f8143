"""RocketMQ's Python client over gRPC, one scenario per run. Prints one JSON object per line; to wait for the test, it
reads a line. The test creates the topics and groups before."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import rocketmq
from rocketmq.v5.client import ClientConfiguration, Credentials

# Two packages share this name, and the other one's file may be the installed one.
rocketmq.ClientConfiguration = ClientConfiguration

from rocketmq.grpc_protocol import TransactionResolution  # noqa: E402
from rocketmq.v5.consumer import ConsumeResult, MessageListener, PushConsumer, SimpleConsumer  # noqa: E402
from rocketmq.v5.model import FilterExpression, Message  # noqa: E402
from rocketmq.v5.producer import Producer, TransactionChecker  # noqa: E402

PATIENCE_S = 60
SQL = 2


def say(**line: object) -> None:
    print(json.dumps(line), flush=True)


def wait() -> None:
    sys.stdin.readline()


def until(condition: Callable[[], bool], awaited: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            sys.exit(f"timed out waiting for: {awaited}")
        time.sleep(0.01)


def message(topic: str, body: str, **fields: Any) -> Any:
    made = Message()
    made.topic, made.body = topic, body.encode()
    for name, value in fields.pop("properties", {}).items():
        made.add_property(name, value)
    for name, value in fields.items():
        setattr(made, name, value)
    return made


class Listener(MessageListener):
    """Records the consumed messages, and accepts or fails each as `judge` says."""

    def __init__(self, judge: Callable[[Any], bool] = lambda message: True) -> None:
        self.taken: list[Any] = []
        self.lock = threading.Lock()
        self._judge = judge

    def consume(self, message: Any) -> Any:
        with self.lock:
            self.taken.append(message)
            return ConsumeResult.SUCCESS if self._judge(message) else ConsumeResult.FAILURE

    @property
    def bodies(self) -> list[str]:
        with self.lock:
            return [each.body.decode() for each in self.taken]


class Checker(TransactionChecker):
    def __init__(self) -> None:
        self.asked: list[str] = []

    def check(self, message: Any) -> Any:
        body = message.body.decode()
        self.asked.append(body)
        return TransactionResolution.COMMIT if body.endswith("commit") else TransactionResolution.ROLLBACK


class Client:
    def __init__(self, endpoints: str, running: ExitStack) -> None:
        self._configuration = ClientConfiguration(endpoints, Credentials(), request_timeout=10)
        self._running = running

    def producer(self, *topics: str, checker: Any = None) -> Any:
        return self._begun(Producer(self._configuration, topics, checker))

    def simple(self, topic: str, expression: Any = None, group: str = "g", await_s: int = 5) -> Any:
        wanted = {topic: expression or FilterExpression()}
        return self._begun(SimpleConsumer(self._configuration, group, wanted, await_duration=await_s))

    def push(self, topic: str, listener: Listener, group: str = "g") -> Any:
        return self._begun(PushConsumer(self._configuration, group, listener, {topic: FilterExpression()}))

    def _begun(self, client: Any) -> Any:
        client.startup()
        self._running.callback(client.shutdown)
        return client

    # -- scenarios

    def sync(self) -> None:
        producer, consumer = self.producer("normal"), self.simple("normal")
        sent = [
            producer.send(message("normal", str(i), tag="tag", keys=f"key{i}", properties={"colour": f"blue {i}"}))
            for i in range(20)
        ]
        read = receive_all(consumer, 20)
        say(
            ids=len({each.message_id for each in sent}),
            same=sorted(each.message_id for each in sent) == sorted(each.message_id for each in read),
            read={
                each.body.decode(): [each.tag, *each.keys, each.properties["colour"], each.delivery_attempt]
                for each in read
            },
        )

    def asynchronous(self) -> None:
        producer, consumer = self.producer("normal"), self.simple("normal")
        futures = [producer.send_async(message("normal", str(i))) for i in range(20)]
        ids = {future.result(PATIENCE_S).message_id for future in futures}
        read = []
        while len(read) < 20:
            found = consumer.receive_async(32, 15).result(PATIENCE_S)
            for each in found:
                consumer.ack(each)
            read += [each.body.decode() for each in found]
        say(ids=len(ids), read=sorted(read, key=int))

    def filters(self) -> None:
        producer = self.producer("normal")
        for number, tag in enumerate(("Aa", "BB", "C", "Aa", "D")):
            producer.send(message("normal", f"{tag}{number}", tag=tag, properties={"n": str(number)}))
        wanted = {
            "tags": FilterExpression("Aa || C"),
            "twin": FilterExpression("BB"),
            "sql": FilterExpression("n > 1 AND TAGS <> 'D'", SQL),
        }
        found = {}
        for group, expression in wanted.items():
            consumer = self.simple("normal", expression, group)
            found[group] = sorted(each.body.decode() for each in receive_all(consumer, 1 if group == "twin" else 2))
        say(**found)

    def large(self) -> None:
        producer, consumer = self.producer("normal"), self.simple("normal")
        body = "x" * (3 << 20)
        producer.send(message("normal", body))
        try:
            producer.send(message("normal", "y" * ((4 << 20) + 1)))
            refused = ""
        except Exception as error:
            refused = type(error).__name__
        (read,) = receive_all(consumer, 1)
        say(intact=read.body.decode() == body, refused=bool(refused))

    def push_all(self) -> None:
        producer, listener = self.producer("normal"), Listener()
        self.push("normal", listener)
        for number in range(100):
            producer.send(message("normal", str(number)))
        until(lambda: len(set(listener.bodies)) == 100, "a hundred messages")
        say(taken=sorted(map(int, listener.bodies)))

    def fifo(self) -> None:
        producer, listener = self.producer("fifo"), Listener()
        self.push("fifo", listener, "orderly")
        for step in range(6):
            for order in range(5):
                producer.send(message("fifo", f"{order} {step}", message_group=f"order {order}"))
        until(lambda: len(listener.bodies) == 30, "all steps")
        steps: dict[str, list[int]] = {}
        for body in listener.bodies:
            order, step = body.split()
            steps.setdefault(order, []).append(int(step))
        say(steps=steps)

    def invisible(self) -> None:
        """Three leases with the broker's clock moved by the test: one is extended, one is returned, one expires."""
        producer, consumer = self.producer("normal"), self.simple("normal")
        for body in ("longer", "back", "forgotten"):
            producer.send(message("normal", body))
        held = {each.body.decode(): each for each in receive_all(consumer, 3, acks=False)}
        consumer.change_invisible_duration(held["longer"], 3600)
        consumer.change_invisible_duration(held["back"], 20)
        say(done="held")
        wait()
        again = receive_all(consumer, 2)
        consumer.ack(held["longer"])
        say(again=sorted((each.body.decode(), each.delivery_attempt) for each in again))

    def delays(self) -> None:
        producer, consumer = self.producer("delay"), self.simple("delay")
        now_s = int(time.time())
        for body, delay_s in (("half", 1800), ("hour", 3600)):
            producer.send(message("delay", body, delivery_timestamp=now_s + delay_s))
        taken_back = producer.send(message("delay", "recalled", delivery_timestamp=now_s + 1800))
        producer.recall_message("delay", taken_back.recall_handle)
        taken: list[str] = []
        for _ in range(2):
            say(done=f"taken {taken}")
            wait()
            taken += [each.body.decode() for each in receive_all(consumer, 1)]
        say(done=f"taken {taken}")

    def transactions(self) -> None:
        checker = Checker()
        producer, listener = self.producer("transaction", checker=checker), Listener()
        self.push("transaction", listener)
        for body, end in (("commit", "commit"), ("rollback", "rollback"), ("asked-commit", ""), ("asked-not", "")):
            transaction = producer.begin_transaction()
            producer.send(message("transaction", body), transaction)
            if end:
                getattr(transaction, end)()
        until(lambda: "commit" in listener.bodies, "the committed message")
        say(done=f"taken {listener.bodies}")
        wait()
        until(lambda: len(listener.bodies) > 1 and len(checker.asked) >= 2, "the checked messages")
        say(taken=listener.bodies, asked=sorted(set(checker.asked)))

    def dead_letter(self) -> None:
        """Every delivery fails. The test moves the clock between them."""
        producer, listener = self.producer("normal"), Listener(lambda message: False)
        self.push("normal", listener, "few")
        producer.send(message("normal", "bad"))
        for number in range(1, 4):
            until(lambda: len(listener.taken) == number, f"try {number}")  # noqa: B023
            say(done=f"tried {number}", attempt=listener.taken[-1].delivery_attempt)
            wait()
        say(tries=len(listener.taken))

    def restart(self) -> None:
        producer, listener = self.producer("normal"), Listener()
        self.push("normal", listener)
        number = 0
        for round in range(3):
            for _ in range(10):
                send_at_last(producer, message("normal", str(number)))
                number += 1
            until(lambda: len(set(listener.bodies)) == number, f"round {round}")  # noqa: B023
            say(taken=sorted(set(map(int, listener.bodies))))
            wait()


def receive_all(consumer: Any, count: int, acks: bool = True) -> list[Any]:
    found: list[Any] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(found) < count:
        if time.monotonic() > deadline:
            sys.exit(f"received {len(found)} messages of {count}")
        for each in consumer.receive(32, 15):
            found.append(each)
            if acks:
                consumer.ack(each)
    return found


def send_at_last(producer: Any, made: Any) -> None:
    """Sends until the broker accepts it: the client stops retrying before a restarted broker is back."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            producer.send(made)
        except Exception:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)
        else:
            return


if __name__ == "__main__":
    endpoints, scenario, *_ = sys.argv[1:]
    with ExitStack() as running:
        getattr(Client(endpoints, running), scenario)()
    os._exit(0)  # the client has a non-daemon thread that does not end
