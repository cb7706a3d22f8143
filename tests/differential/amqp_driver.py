"""Driver of one AMQP broker: sends steps, waits until the broker has nothing more to do, and normalises the answers."""

from __future__ import annotations

import re
import select
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from differential.amqp_connection import (
    BODY,
    HEADER,
    PATIENCE_S,
    ClientConnection,
    Ended,
    content_header,
    raw_frame,
    shake_hands,
)
from differential.sequences import Step

UNIQUE = "@"
"""Stands in the names of a step for the part that is different in each run."""

QUIET_S = 0.006
QUIET_REPLICATED_S = 0.025
QUIET_TEARDOWN_S = 0.04
QUIET_EXPIRY_S = 0.1
"""Between two looks at the broker that must show the same: for classic queues; for quorum queues and streams, which
write first; after the end of a connection; and while messages expire."""

SHORT_TTL_MS = 50
CONFIRM_PATIENCE_S = 1.5
MAX_ROUNDS = 60

EARLIEST_TIME = 1_700_000_000
"""Times after this one were set by the broker."""

_GENERATED = re.compile(
    r"amq\.gen-[A-Za-z0-9_-]{22}|amq\.ctag-[A-Za-z0-9_-]{22}|amq\.rabbitmq\.reply-to\.[A-Za-z0-9+/=_.-]+"
)
_KINDS = {"amq.gen-": "gen", "amq.ctag": "ctag", "amq.rabb": "reply"}
_BARRIER = "channel.flow_ok"


@dataclass
class Channel:
    """State of a channel as far as the driver needs it."""

    open: bool = True
    closing: bool = False
    committing: bool = False
    """RabbitMQ takes no other method before it has answered a tx.commit."""
    barriers: int = 0
    confirming: bool = False
    published: int = 0
    settled: set[int] = field(default_factory=set)
    unacked: list[int] = field(default_factory=list)
    no_ack_tags: set[str] = field(default_factory=set)
    no_ack_get: bool = False

    def select_confirms(self) -> None:
        """Messages are counted from the first request for confirms on."""
        if not self.confirming:
            self.confirming = True
            self.published = 0
            self.settled.clear()


@dataclass
class Events:
    """What arrived on one channel during a step."""

    replies: list[Any] = field(default_factory=list)
    delivered: dict[str, list[Any]] = field(default_factory=dict)
    acked: set[int] = field(default_factory=set)
    nacked: set[int] = field(default_factory=set)

    def shown(self) -> dict[str, Any]:
        parts = {
            "replies": self.replies,
            "delivered": self.delivered,
            "acked": sorted(self.acked),
            "nacked": sorted(self.nacked),
        }
        return {name: part for name, part in parts.items() if part}


class AmqpDriver:
    """Runs sequences against the broker at a port of this machine."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._runs = 0

    def run(self, steps: Sequence[Step]) -> list[Any]:
        self._runs += 1
        run = _Run(self._port, f"-{self._runs:06}")
        try:
            return [run.do(step) for step in steps]
        finally:
            run.close()


class _Names:
    """Makes names unique on the way out, and replaces unique and generated names on the way in."""

    def __init__(self, unique: str) -> None:
        self._unique = unique
        self._shown: dict[str, str] = {}

    def out(self, value: Any) -> Any:
        if isinstance(value, str):
            for generated, shown in self._shown.items():
                value = value.replace(shown, generated)
            return value.replace(UNIQUE, self._unique)
        if isinstance(value, dict):
            return {self.out(key): self.out(each) for key, each in value.items()}
        return [self.out(each) for each in value] if isinstance(value, list) else value

    def back(self, value: Any) -> Any:
        if isinstance(value, str):
            return _GENERATED.sub(self._number, value).replace(self._unique, UNIQUE)
        if isinstance(value, dict):
            return {self.back(key): self.back(each) for key, each in value.items()}
        if isinstance(value, list):
            if len(value) == 2 and value[0] == "T" and value[1] > EARLIEST_TIME:
                return ["T", "now"]
            return [self.back(each) for each in value]
        return value.decode("latin-1") if isinstance(value, bytes) else value

    def _number(self, found: re.Match[str]) -> str:
        generated = found[0]
        if generated not in self._shown:
            kind = _KINDS[generated[:8]]
            count = sum(shown.startswith(f"<{kind}") for shown in self._shown.values())
            self._shown[generated] = f"<{kind}{count + 1}>"
        return self._shown[generated]


class _Observer:
    """Counts the messages and consumers of each queue of a run by passive declares, each on a channel of its own: a
    queue that does not exist closes only that one."""

    def __init__(self, port: int) -> None:
        self.connection = ClientConnection(port)
        self.counts: dict[str, Any] = {}
        self._channels: dict[str, int] = {}
        self._waiting: set[int] = set()
        self._next = 1

    def watch(self, queue: str) -> None:
        if queue in self._channels:
            return
        self._channels[queue] = self._next
        self.connection.send(self._next, "channel.open", {})
        self._next += 1

    def ask(self) -> None:
        for queue, channel in self._channels.items():
            self.connection.send(channel, "queue.declare", {"queue": queue, "passive": True})
            self._waiting.add(channel)

    @property
    def answered(self) -> bool:
        return not self._waiting or self.connection.ended

    def take(self) -> None:
        for method in self.connection.received:
            queue = next((name for name, channel in self._channels.items() if channel == method.ch), "")
            if method.name == "queue.declare_ok":
                self.counts[queue] = {"messages": method["messages"], "consumers": method["consumers"]}
                self._waiting.discard(method.ch)
            elif method.name == "channel.close":
                self.counts[queue] = method["code"]
                self.connection.send(method.ch, "channel.close_ok", {})
                self._waiting.discard(method.ch)
                del self._channels[queue]
        self.connection.received.clear()


class _Run:
    """One sequence on one broker."""

    def __init__(self, port: int, unique: str) -> None:
        self._port = port
        self._names = _Names(unique)
        self._connections: dict[int, ClientConnection] = {}
        self._channels: dict[tuple[int, int], Channel] = {}
        self._events: dict[tuple[int, int], Events] = {}
        self._observer = _Observer(port)
        self._count = 0
        self._quiet_s = QUIET_S
        self._queues: set[str] = set()
        self._to_watch: set[str] = set()
        self._kinds: dict[str, str] = {}
        self._exchanges: set[str] = set()
        self._exchange_bindings: list[dict[str, Any]] = []

    # -- steps

    def do(self, step: Step) -> Any:
        self._events = {}
        arguments = self._names.out(step.arguments)
        channel = arguments.pop("ch", 1)
        quiet_s = self._quiet_s
        if step.request == "connect":
            return self._connect(step.connection, arguments)
        if step.request == "handshake":
            return self._names.back(shake_hands(self._port, arguments["sent"]))
        connection = self._connections.get(step.connection)
        if connection is None or connection.ended:
            answer = self._connect(step.connection, {})
            if answer != "connected":
                return answer
        connection = self._connections[step.connection]
        if step.request == "drop":
            connection.end()
            self._forget(step.connection)
            quiet_s = max(quiet_s, QUIET_TEARDOWN_S)
        elif step.request == "wait":
            time.sleep(arguments["ms"] / 1000)
        elif step.request == "frames":
            self._send_frames(connection, arguments["frames"])
            channel = arguments.get("answer_on", channel)
        elif not self._send(step, connection, channel, arguments):
            return "skipped"
        if step.request == "frames" or "raw" in step.arguments or channel == 0:
            quiet_s = max(quiet_s, QUIET_TEARDOWN_S)
        elif step.request in ("channel.close", "queue.delete", "basic.cancel"):
            quiet_s = max(quiet_s, QUIET_TEARDOWN_S / 2)
        self._settle(max(quiet_s, self._quiet_s))
        return self._answer()

    def _connect(self, number: int, options: Mapping[str, Any]) -> Any:
        existing = self._connections.get(number)
        self._forget(number)
        if existing is not None and not existing.ended:
            existing.end()
            self._settle(QUIET_TEARDOWN_S)
        try:
            self._connections[number] = ClientConnection(self._port, options)
        except Ended as ended:
            return self._names.back(str(ended))
        return "connected"

    def _forget(self, number: int) -> None:
        self._connections.pop(number, None)
        for key in [key for key in self._channels if key[0] == number]:
            del self._channels[key]

    def _send(self, step: Step, connection: ClientConnection, number: int, fields: dict[str, Any]) -> bool:
        """Sends one method, with its content. Opens the channel first if it is not open."""
        key = (step.connection, number)
        channel = self._channels.get(key)
        raw = fields.pop("raw", False)
        if number and (channel is None or not channel.open) and not raw and step.request != "channel.open":
            connection.send(number, "channel.open", {})
            self._channels[key] = channel = Channel()
            self._wait_for_barriers()
            self._events = {}
        elif step.request == "channel.open" and (channel is None or not channel.open):
            self._channels[key] = channel = Channel()
        if "nth" in fields:
            nth = fields.pop("nth")
            if channel is None or not channel.unacked:
                return False
            fields["dtag"] = channel.unacked[nth % len(channel.unacked)]
        if connection.ended:
            return True
        if step.request == "basic.publish":
            self._publish(connection, number, channel, fields)
        else:
            self._note(step.request, channel, fields)
            connection.send(number, step.request, fields)
            if channel is not None:
                channel.closing = step.request == "channel.close"
                channel.committing = step.request == "tx.commit"
            connection.closing = step.request == "connection.close"
        return True

    def _publish(
        self, connection: ClientConnection, number: int, channel: Channel | None, fields: dict[str, Any]
    ) -> None:
        body = (fields.pop("body", "") * fields.pop("times", 1)).encode()
        properties = fields.pop("properties", {})
        split = fields.pop("split", 0) or 100000
        if _is_short(properties.get("expiration", "")):
            self._quiet_s = QUIET_EXPIRY_S
        for _ in range(fields.pop("count", 1)):
            connection.send(number, "basic.publish", fields)
            connection.send_frame(HEADER, number, content_header(len(body), properties))
            for start in range(0, len(body), split):
                connection.send_frame(BODY, number, body[start : start + split])
            if channel is not None:
                channel.published += 1

    def _note(self, request: str, channel: Channel | None, fields: Mapping[str, Any]) -> None:
        """Remembers what a later step or the end of the run needs."""
        if request == "queue.declare":
            arguments = fields.get("args") or {}
            if not fields.get("passive") and fields.get("queue"):
                self._watch(fields["queue"])
            if arguments.get("x-queue-type") in ("quorum", "stream"):
                if self._kinds.get(fields.get("queue", "")) != "stream":  # a redeclaration changes nothing
                    self._kinds[fields.get("queue", "")] = arguments["x-queue-type"]
                self._quiet_s = max(self._quiet_s, QUIET_REPLICATED_S)
            waits = [arguments.get(name, "") for name in ("x-message-ttl", "x-delayed-retry-min")]
            if any(map(_is_short, waits)) or fields.get("queue", "").startswith("p-ttl"):
                self._quiet_s = QUIET_EXPIRY_S
        elif request == "exchange.declare" and not fields.get("passive"):
            self._exchanges.add(fields.get("exchange", ""))
        elif request == "exchange.bind":
            self._exchange_bindings.append({key: value for key, value in fields.items() if key != "nowait"})
        elif channel is None:
            return
        elif request == "confirm.select" and fields.get("nowait"):
            channel.select_confirms()
        elif request == "basic.consume" and fields.get("no_ack"):
            channel.no_ack_tags.add(fields.get("tag", ""))
        elif request == "basic.get":
            channel.no_ack_get = bool(fields.get("no_ack"))
        elif request in ("basic.ack", "basic.nack", "basic.reject"):
            tag = fields.get("dtag", 0)
            several = fields.get("multiple")
            channel.unacked = [
                each for each in channel.unacked if each != tag and not (several and (each < tag or not tag))
            ]

    def _watch(self, queue: str) -> None:
        self._queues.add(queue)
        self._to_watch.add(queue)

    def _send_frames(self, connection: ClientConnection, frames: Sequence[Mapping[str, Any]]) -> None:
        for each in frames:
            connection.send_bytes(raw_frame(each))

    # -- answers

    def _settle(self, quiet_s: float) -> None:
        """Looks at the broker again and again until nothing has changed since the last look: each channel answers a
        flow, each queue tells its counts, and confirms that are due have arrived."""
        until = time.monotonic() + CONFIRM_PATIENCE_S
        before: Any = None
        for _ in range(MAX_ROUNDS):
            self._wait_for_barriers()
            now = (self._count, dict(self._observer.counts), self._unconfirmed())
            if now == before and (not self._unconfirmed() or time.monotonic() > until):
                break
            before = now
            self._receive(quiet_s)
        for channel in self._channels.values():
            channel.settled.update(range(1, channel.published + 1))  # a missing confirm is waited for once

    def _unconfirmed(self) -> int:
        return sum(
            channel.published - len(channel.settled)
            for channel in self._channels.values()
            if channel.open and channel.confirming
        )

    def _wait_for_barriers(self) -> None:
        """Each channel first, then the queues: what a channel has sent to a queue is counted."""
        for (number, channel_number), channel in self._channels.items():
            connection = self._connections.get(number)
            if connection is None or connection.ended or connection.close_sent or connection.closing:
                continue
            if channel.open and not channel.closing and not channel.committing:
                connection.send(channel_number, "channel.flow", {"active": True})
                channel.barriers += 1
        if not self._wait(self._channels_answered):
            self._give_up()
        for queue in self._to_watch:
            self._observer.watch(queue)
        self._to_watch.clear()
        self._observer.ask()
        if not self._wait(lambda: self._observer.answered):
            raise TimeoutError("no answer to a passive declare")

    def _wait(self, is_reached: Callable[[], bool]) -> bool:
        until = time.monotonic() + PATIENCE_S
        while not is_reached() and time.monotonic() < until:
            self._receive(0.5, once=True)
        return is_reached()

    def _channels_answered(self) -> bool:
        for (number, _), channel in self._channels.items():
            connection = self._connections.get(number)
            if connection is None or connection.ended or not channel.open or connection.closing:
                continue
            if channel.barriers > 0 or channel.closing or channel.committing:
                return False
        return not any((each.close_sent or each.closing) and not each.ended for each in self._connections.values())

    def _give_up(self) -> None:
        for (number, channel_number), channel in list(self._channels.items()):
            if channel.open and (channel.barriers > 0 or channel.closing or channel.committing):
                self._on(number, channel_number).replies.append("no answer")
                self._connections[number].end()
        for number, connection in self._connections.items():
            if (connection.close_sent or connection.closing) and not connection.ended:
                self._on(number, 0).replies.append("connection stays open")
                connection.end()

    def _receive(self, seconds: float, once: bool = False) -> None:
        """Receives on all connections for a time, or until something arrived."""
        until = time.monotonic() + seconds
        while True:
            alive = [each for each in [*self._connections.values(), self._observer.connection] if not each.ended]
            ready = select.select(alive, [], [], max(0.0, until - time.monotonic()))[0]
            for connection in ready:
                connection.receive()
            self._observer.take()
            for number, connection in self._connections.items():
                self._take(number, connection)
            if once or time.monotonic() >= until:
                return

    def _take(self, number: int, connection: ClientConnection) -> None:
        for method in connection.received:
            self._take_method(number, connection, method)
        connection.received.clear()
        if connection.ended and not connection.close_sent:
            self._count += 1
            if not connection.closing:
                self._on(number, 0).replies.append("end of connection")
            self._close_channels(number)
            connection.close_sent = True

    def _close_channels(self, number: int) -> None:
        for key, channel in self._channels.items():
            if key[0] == number:
                channel.open = False

    def _on(self, number: int, channel: int) -> Events:
        return self._events.setdefault((number, channel), Events())

    def _take_method(self, number: int, connection: ClientConnection, method: Any) -> None:
        channel = self._channels.get((number, method.ch))
        if method.name == _BARRIER and method["active"] and channel is not None and channel.barriers > 0:
            channel.barriers -= 1
            return
        self._count += 1
        events = self._on(number, method.ch)
        if method.name in ("basic.ack", "basic.nack") and channel is not None:
            tags = _confirmed(method, channel)
            channel.settled.update(tags)
            (events.acked if method.name == "basic.ack" else events.nacked).update(tags)
        elif method.name == "basic.deliver":
            tag = method["tag"]
            if channel is not None and tag not in channel.no_ack_tags:
                channel.unacked.append(method["dtag"])
            shown = {key: value for key, value in method.items() if key != "tag"}
            events.delivered.setdefault(self._names.back(tag), []).append(self._names.back(shown))
        else:
            self._reply(number, connection, channel, method, events)

    def _reply(
        self, number: int, connection: ClientConnection, channel: Channel | None, method: Any, events: Events
    ) -> None:
        fields = dict(method)
        if method.name == "queue.declare_ok":
            fields = self._counted(method["queue"], fields)
        events.replies.append({"method": method.name, **self._names.back(fields)})
        if method.name == "connection.close":
            connection.send(0, "connection.close_ok", {})
            connection.close_sent = True
            self._close_channels(number)
            return
        if method.name == "connection.close_ok":
            connection.end()  # by the client: RabbitMQ leaves it to it
            connection.close_sent = True
            self._close_channels(number)
            return
        if method.name == "queue.declare_ok" and method["queue"].startswith("amq.gen-"):
            self._watch(method["queue"])
        if channel is None:
            return
        if method.name == "channel.close":
            connection.send(method.ch, "channel.close_ok", {})
            channel.open = False
        elif method.name == "channel.close_ok":
            channel.open = False
        elif method.name == "tx.commit_ok":
            channel.committing = False
        elif method.name == "confirm.select_ok":
            channel.select_confirms()
        elif method.name == "basic.get_ok" and not channel.no_ack_get:
            channel.unacked.append(method["dtag"])
        elif method.name == "basic.consume_ok" and "" in channel.no_ack_tags:
            channel.no_ack_tags.discard("")
            channel.no_ack_tags.add(method["tag"])

    def _answer(self) -> Any:
        shown = {f"{number}/{channel}": each.shown() for (number, channel), each in self._events.items()}
        counts = {self._names.back(queue): self._counted(queue, each) for queue, each in self._observer.counts.items()}
        return {**{key: each for key, each in shown.items() if each}, "queues": counts}

    def _counted(self, queue: str, counts: Any) -> Any:
        """RabbitMQ counts the messages and consumers of a stream late, and an unacked basic.get of a quorum queue as a
        consumer."""
        hidden = {"quorum": ["consumers"], "stream": ["consumers", "messages"]}.get(self._kinds.get(queue, ""), [])
        if not isinstance(counts, dict):
            return counts
        return {name: count for name, count in counts.items() if name not in hidden}

    # -- end

    def close(self) -> None:
        """Deletes what the run declared, and closes its connections."""
        for connection in self._connections.values():
            if not connection.ended:
                _close(connection)
        _close(self._observer.connection)
        last = ClientConnection(self._port)
        for number, (request, fields) in enumerate(self._deletes(), 1):
            last.send(number, "channel.open", {})
            last.send(number, request, fields)
        _close(last)

    def _deletes(self) -> Iterator[tuple[str, dict[str, Any]]]:
        for binding in self._exchange_bindings:  # those between predeclared exchanges would stay
            yield "exchange.unbind", binding
        for queue in sorted(self._queues):
            yield "queue.delete", {"queue": queue}
        for exchange in sorted(self._exchanges):
            if exchange and not exchange.startswith("amq."):
                yield "exchange.delete", {"exchange": exchange}


def _close(connection: ClientConnection) -> None:
    """Closes in an orderly way: what the broker has received before is done when it answers."""
    connection.send(0, "connection.close", {"code": 200, "text": "end"})
    until = time.monotonic() + PATIENCE_S
    while not connection.ended and time.monotonic() < until:
        if any(method.name in ("connection.close_ok", "connection.close") for method in connection.received):
            break
        connection.receive()
    connection.end()


def _confirmed(method: Any, channel: Channel) -> set[int]:
    if not method["multiple"]:
        return {method["dtag"]}
    last = method["dtag"] or channel.published
    return set(range(1, last + 1)) - channel.settled


def _is_short(ttl: Any) -> bool:
    return str(ttl).isdigit() and 0 < int(ttl) <= SHORT_TTL_MS
