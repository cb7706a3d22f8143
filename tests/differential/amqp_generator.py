"""Generator of AMQP sequences: weighted by a theme, and with a rough memory of what exists, so that most steps succeed
and the sequences go deep. It need not be right: a step that fails is compared too."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any

from differential import amqp_values as values
from differential.amqp_policies import EXPIRES_MS
from differential.sequences import Step

STEPS = (8, 30)
HANDSHAKES = (1, 3)
"""Sequences of handshakes are short: each waits for seconds whether the broker closes the connection."""

CHANNELS = [1, 1, 1, 2, 3]
ODD = 0.12
"""Share of values that are on the edge or invalid."""

_TOPOLOGY = {"declare_queue": 8, "declare_exchange": 8, "bind": 6, "unbind": 3, "delete": 4, "publish": 3, "purge": 2}
_MESSAGES = {"publish": 12, "get": 6, "settle": 7, "consume": 3, "cancel": 1, "qos": 1, "recover": 1}

THEMES: dict[str, dict[str, int]] = {
    "topology": {**_TOPOLOGY, "bind_exchange": 3, "get": 1, "consume": 1, "close": 1},
    "arguments": {"declare_queue": 12, "redeclare": 5, "publish": 3, "get": 2, "delete": 1},
    "routing": {"declare_exchange": 3, "bind": 6, "bind_exchange": 2, "unbind": 2, "publish": 14, "get": 4, "purge": 1},
    "messages": {**_MESSAGES, "purge": 1, "delete": 1},
    "consumers": {**_MESSAGES, "consume": 7, "cancel": 3, "qos": 3, "close": 2, "drop": 1, "recover": 2, "purge": 1},
    "limits": {**_MESSAGES, "declare_queue": 3, "confirm": 1, "purge": 1},
    "dead_letters": {**_MESSAGES, "declare_queue": 2, "reject": 6, "purge": 1},
    "confirms": {"confirm": 3, "publish": 14, "publish_many": 2, "delete": 2, "consume": 2, "settle": 2, "close": 1},
    "transactions": {
        "tx": 8,
        "publish": 8,
        "settle": 5,
        "get": 4,
        "consume": 1,
        "close": 1,
        "confirm": 1,
        "bind": 1,
        "unbind": 1,
        "delete": 1,
        "declare_queue": 1,
    },
    "single_active": {"consume": 7, "cancel": 4, "publish": 8, "settle": 6, "close": 2, "drop": 1, "qos": 1, "get": 1},
    "priorities": {"publish_ranked": 12, "consume": 3, "cancel": 1, "get": 6, "settle": 6, "qos": 1, "purge": 1},
    "policies": {
        **_MESSAGES,
        "declare_queue": 4,
        "declare_exchange": 2,
        "bind": 4,
        "confirm": 1,
        "wait": 1,
        "purge": 1,
    },
    "expiry": {
        "declare_queue": 4,
        "wait": 4,
        "consume": 2,
        "cancel": 2,
        "get": 2,
        "publish": 3,
        "redeclare": 1,
        "close": 1,
    },
    "alternates": {
        "declare_exchange": 6,
        "bind": 5,
        "bind_exchange": 4,
        "unbind": 3,
        "delete": 3,
        "publish": 12,
        "get": 3,
    },
    "retries": {**_MESSAGES, "reject": 8, "wait": 3},
    "handshakes": {"handshake": 1},
    "properties": {"publish_odd": 12, "get": 8, "consume": 1, "confirm": 1},
    "streams": {
        "publish": 8,
        "consume_stream": 4,
        "settle": 4,
        "cancel": 1,
        "qos": 2,
        "get": 1,
        "purge": 1,
        "delete": 1,
    },
    "replies": {"reply_consume": 3, "reply_request": 6, "reply_send": 6, "reply_odd": 2, "cancel": 1, "close": 1},
    "states": {
        "channel": 6,
        "declare_queue": 3,
        "publish": 3,
        "get": 2,
        "close": 2,
        "connection": 3,
        "tx": 1,
        "confirm": 1,
    },
    "frames": {"frames": 6, "publish": 4, "get": 2, "declare_queue": 1},
    "exclusive": {
        "declare_exclusive": 5,
        "redeclare": 3,
        **_MESSAGES,
        "delete": 2,
        "bind": 2,
        "drop": 1,
        "connection": 1,
    },
}


def generate(source: random.Random) -> list[Step]:
    """Returns a sequence of one theme, sometimes mixed with a second one."""
    return _Sequence(source).steps


class _Sequence:
    def __init__(self, source: random.Random) -> None:
        self._source = source
        self.steps: list[Step] = []
        self._kinds: dict[str, str] = {}
        self._declared: dict[str, dict[str, Any]] = {}
        self._tags: dict[tuple[int, int], list[str]] = {}
        self._consumed: dict[tuple[int, int], str] = {}
        themes = source.sample(sorted(THEMES), 2 if source.random() < 0.3 and len(THEMES) > 1 else 1)
        self._theme = themes[0]
        self._queues, self._exchanges = values.QUEUES, values.EXCHANGES
        if self._theme == "policies":
            self._queues = source.sample(values.POLICY_QUEUES, 4)
            self._exchanges = values.POLICY_EXCHANGES
        weights: dict[str, int] = {}
        for theme in themes:
            for action, weight in THEMES[theme].items():
                weights[action] = weights.get(action, 0) + weight
        self._prepare()
        for _ in range(source.randint(*(HANDSHAKES if self._theme == "handshakes" else STEPS))):
            action = source.choices(list(weights), list(weights.values()))[0]
            getattr(self, f"_{action}")()

    # -- choices

    def _chance(self, share: float) -> bool:
        return self._source.random() < share

    def _step(self, request: str, arguments: Mapping[str, Any], on: tuple[int, int] | None = None) -> None:
        connection, channel = on or self._place()
        shown = {key: value for key, value in arguments.items() if value not in (False, {}) or key == "active"}
        self.steps.append(Step(connection, request, {"ch": channel, **shown}))

    def _place(self) -> tuple[int, int]:
        return self._source.choice([0, 0, 0, 1]), self._source.choice(CHANNELS)

    def _queue(self) -> str:
        if self._kinds and not self._chance(0.04):
            return self._source.choice(list(self._kinds))
        return self._source.choice([*self._queues, "missing@", ""])

    def _exchange(self, hashes: bool = False) -> str:
        if self._chance(0.05):
            return self._source.choice(["", "missing@", "amq.nosuch"])
        system = ["amq.direct", "amq.fanout", "amq.topic", "amq.headers"]
        hashing = [values.HASH_EXCHANGE] if hashes and self._theme in ("routing", "alternates") else []
        return self._source.choice([*self._exchanges, *system, *hashing])

    def _flags(self, share: float, *names: str) -> dict[str, bool]:
        return {name: True for name in names if self._chance(share)}

    # -- topology

    def _prepare(self) -> None:
        """Declares most of what the theme needs."""
        if self._theme == "handshakes":
            return
        for queue in self._queues[: self._source.randint(1, 3)]:
            self._declare_queue(queue)
        if self._theme in ("routing", "topology", "dead_letters", "transactions", "policies", "alternates"):
            for exchange in self._exchanges[:2]:
                self._declare_exchange(exchange)
            for _ in range(3):
                self._bind()

    def _kind(self, name: str) -> str:
        if self._theme == "streams":
            return self._source.choice(["stream", "stream", "stream", "classic"])
        if self._theme == "exclusive":
            return "classic"
        if self._theme == "expiry" or name.startswith("p-expires"):
            return "classic"  # RabbitMQ looks only every five seconds whether a quorum queue has expired
        if self._theme == "retries":
            return "quorum"
        return self._source.choices(["classic", "quorum", "stream"], [6, 3, 0.4])[0]

    def _argument(self, name: str) -> Any:
        usual, odd = values.QUEUE_ARGUMENTS[name]
        return self._source.choice(odd if self._chance(ODD) else usual)

    def _arguments(self, kind: str) -> dict[str, Any]:
        arguments: dict[str, Any] = {}
        if kind != "classic" or self._chance(0.2):
            arguments["x-queue-type"] = kind
        names = list(values.BY_KIND[kind])
        count = self._source.choice([0, 0, 1, 1, 2])
        if self._theme == "limits":
            names = [name for name in names if "length" in name or name == "x-overflow"] * 3 + names
            count += 1
        elif self._theme == "dead_letters":
            arguments["x-dead-letter-exchange"] = self._argument("x-dead-letter-exchange")
            names = ["x-dead-letter-routing-key", "x-message-ttl", "x-max-length", "x-overflow"]
            names += ["x-delivery-limit", "x-dead-letter-strategy"] if kind == "quorum" else ["x-max-priority"]
        elif self._theme == "single_active":
            arguments["x-single-active-consumer"] = True
        elif self._theme == "expiry":
            arguments["x-expires"] = EXPIRES_MS
        elif self._theme == "retries":
            arguments["x-delayed-retry-type"] = self._argument("x-delayed-retry-type")
            arguments["x-delayed-retry-min"] = self._argument("x-delayed-retry-min")
            names = ["x-delayed-retry-max", "x-delivery-limit", "x-dead-letter-exchange", "x-max-length"]
        elif self._theme == "priorities" and kind == "classic":
            arguments["x-max-priority"] = self._argument("x-max-priority")
        elif self._theme == "policies":
            count = self._source.choice([0, 0, 0, 1])
        elif self._theme == "arguments":
            count += 1
            if self._chance(0.3):
                names = sorted(values.QUEUE_ARGUMENTS)
        for _ in range(count):
            name = self._source.choice(names)
            arguments[name] = self._argument(name)
        if "x-dead-letter-routing-key" in arguments and not self._chance(0.1):
            arguments.setdefault("x-dead-letter-exchange", "")
        return arguments

    def _declare_queue(self, name: str | None = None) -> None:
        if name is None and self._chance(0.15):
            self._declare_odd()
            return
        queue = name or self._source.choice(self._queues)
        kind = self._kind(queue)
        fields: dict[str, Any] = {"queue": queue, "args": self._arguments(kind)}
        if kind == "classic":
            fields |= self._flags(0.5, "durable") | self._flags(0.06, "auto_delete", "exclusive", "nowait")
        else:
            fields |= {"durable": not self._chance(0.04)} | self._flags(0.04, "auto_delete", "exclusive", "nowait")
        self._kinds[queue] = kind
        self._declared.setdefault(queue, fields)
        self._step("queue.declare", fields)

    def _declare_odd(self) -> None:
        source = self._source
        kind = source.choice([{}, {"x-queue-type": "quorum"}, {"x-queue-type": "stream"}])
        name = source.choice(
            ["", "", "amq.q", "amq.gen-x", "<gen1>", "amq.rabbitmq.reply-to", "é@", "a b\r\n@", "l" * 230]
        )
        flags = self._flags(0.3, "passive", "exclusive", "durable", "auto_delete")
        self._step("queue.declare", {"queue": name, "args": kind if self._chance(0.2) else {}, **flags})

    def _declare_exclusive(self) -> None:
        queue = self._source.choice(values.QUEUES)
        self._kinds[queue] = "classic"
        fields = {"queue": queue, "exclusive": True, **self._flags(0.3, "durable", "auto_delete")}
        self._declared.setdefault(queue, fields)
        self._step("queue.declare", fields)

    def _redeclare(self) -> None:
        """Declares a queue again: the same, passively, or with a change."""
        queue = self._source.choice(list(self._declared))
        fields = {**self._declared[queue], "args": dict(self._declared[queue].get("args", {}))}
        change = self._source.choice(["none", "passive", "flag", "argument", "argument", "value", "less"])
        if change == "passive":
            fields["passive"] = True
        elif change == "flag":
            flag = self._source.choice(["durable", "exclusive", "auto_delete"])
            fields[flag] = not fields.get(flag)
        elif change == "argument":
            name = self._source.choice(sorted(values.QUEUE_ARGUMENTS))
            fields["args"][name] = self._argument(name)
        elif change == "value" and fields["args"]:
            name = self._source.choice(list(fields["args"]))
            fields["args"][name] = self._argument(name)
        elif change == "less" and fields["args"]:
            del fields["args"][self._source.choice(list(fields["args"]))]
        self._step("queue.declare", fields)

    def _declare_exchange(self, name: str | None = None) -> None:
        source = self._source
        exchange = name or source.choice(self._exchanges)
        kind = source.choice(values.EXCHANGE_TYPES)
        fields: dict[str, Any] = {"exchange": exchange, "type": kind, **self._flags(0.5, "durable")}
        if name is None and self._chance(0.1):
            fields["type"] = source.choice(values.ODD_EXCHANGE_TYPES)
        if name is None and self._chance(0.1):
            fields["exchange"] = source.choice(["", "amq.direct", "amq.topic", "amq.nosuch", "é@", "l" * 230])
        fields |= self._flags(0.08, "passive", "internal", "auto_delete", "nowait")
        if self._theme == "alternates":
            fields |= self._flags(0.25, "internal", "auto_delete")
        if self._chance(0.6 if self._theme == "alternates" else 0.2):
            argument = source.choice(["alternate-exchange", "alternate-exchange", *values.EXCHANGE_ARGUMENTS])
            fields["args"] = {argument: source.choice(values.EXCHANGE_ARGUMENTS[argument])}
        self._step("exchange.declare", fields)

    def _binding(self) -> dict[str, Any]:
        fields: dict[str, Any] = {"key": self._source.choice(values.PATTERNS)}
        if self._chance(0.35):
            fields["args"] = self._source.choice(values.BIND_ARGUMENTS)
        return fields

    def _bind(self) -> None:
        fields = {"queue": self._queue(), "exchange": self._exchange(), **self._binding()}
        if self._theme in ("routing", "alternates") and self._chance(0.15):
            self._step("exchange.declare", {"exchange": values.HASH_EXCHANGE, "type": "x-modulus-hash"})
            fields |= {"queue": self._queues[0], "exchange": values.HASH_EXCHANGE}
        self._step("queue.bind", {**fields, **self._flags(0.04, "nowait")})

    def _unbind(self) -> None:
        bound = [step for step in self.steps if step.request in ("queue.bind", "exchange.bind")]
        if bound and not self._chance(0.2):
            step = self._source.choice(bound)
            fields = {key: value for key, value in step.arguments.items() if key not in ("ch", "nowait")}
            self._step(step.request.replace("bind", "unbind"), fields)
        else:
            self._step("queue.unbind", {"queue": self._queue(), "exchange": self._exchange(), **self._binding()})

    def _bind_exchange(self) -> None:
        ends = {"destination": self._exchange(), "source": self._exchange()}
        self._step("exchange.bind", {**ends, **self._binding(), **self._flags(0.04, "nowait")})

    def _delete(self) -> None:
        if self._chance(0.3):
            self._step("exchange.delete", {"exchange": self._exchange(), **self._flags(0.4, "if_unused")})
        else:
            flags = self._flags(0.3, "if_unused", "if_empty") | self._flags(0.04, "nowait")
            self._step("queue.delete", {"queue": self._queue(), **flags})

    def _purge(self) -> None:
        self._step("queue.purge", {"queue": self._queue(), **self._flags(0.04, "nowait")})

    # -- messages

    def _message(self) -> dict[str, Any]:
        fields: dict[str, Any] = {"body": self._source.choice(["", "m", "0123456789", f"m{len(self.steps)}"])}
        properties: dict[str, Any] = {}
        if self._chance(0.3):
            properties["delivery_mode"] = self._source.choice([1, 2])
        if self._chance(0.2):
            properties["priority"] = self._source.choice([0, 1, 4, 5, 9, 255])
        if self._chance(0.2):
            properties["headers"] = self._source.choice(values.HEADERS[:8])
        if self._chance(0.08):
            properties["expiration"] = self._source.choice(values.EXPIRATIONS[:3])
        return {**fields, "properties": properties}

    def _target(self) -> dict[str, Any]:
        if self._theme in ("routing", "topology", "alternates") or self._chance(0.2):
            return {"exchange": self._exchange(hashes=True), "key": self._source.choice(values.KEYS)}
        return {"exchange": "", "key": self._queue()}

    def _publish(self) -> None:
        flags = self._flags(0.2, "mandatory") | self._flags(0.005, "immediate")
        self._step("basic.publish", {**self._target(), **self._message(), **flags})

    def _publish_many(self) -> None:
        self._step("basic.publish", {**self._target(), **self._message(), "count": self._source.choice([3, 20, 300])})

    def _publish_ranked(self) -> None:
        """Publishes a message with a priority, or a few of the same one."""
        priority = self._source.choice([0, 1, 2, 3, 4, 5, 6, 9, 10, 31, 32, 255])
        properties = {"priority": priority} if self._chance(0.85) else {}
        count = self._source.choice([1, 1, 1, 2, 3])
        self._step(
            "basic.publish", {"key": self._queue(), "body": f"m{priority}", "properties": properties, "count": count}
        )

    def _publish_odd(self) -> None:
        source = self._source
        properties: dict[str, Any] = {}
        odd: dict[str, Callable[[], Any]] = {
            "headers": lambda: source.choice([*values.HEADERS, *values.CARBON_COPIES]),
            "expiration": lambda: source.choice(values.EXPIRATIONS),
            "delivery_mode": lambda: source.choice([0, 1, 2, 3, 255]),
            "priority": lambda: source.choice([0, 5, 255]),
            "user_id": lambda: source.choice(["guest", "other", ""]),
            "timestamp": lambda: source.choice([0, 1000, (1 << 63) - 1]),
            "content_type": lambda: source.choice(["text/plain", "", "é"]),
            "content_encoding": lambda: source.choice(["gzip", ""]),
            "correlation_id": lambda: source.choice(["c", "x" * 255]),
            "message_id": lambda: source.choice(["m", ""]),
            "reply_to": lambda: source.choice(["q0@", ""]),
            "type": lambda: "t",
            "app_id": lambda: "app",
            "cluster_id": lambda: "cluster",
        }
        for name in source.sample(sorted(odd), source.randint(1, 3)):
            properties[name] = odd[name]()
        sizes = source.choice([{"body": "m"}, {"body": ""}, {"body": "0123456789", "split": 3}])
        if self._chance(0.05):
            sizes = {"body": "0123456789", "times": 30000}
        self._step(
            "basic.publish", {**self._target(), "properties": properties, **sizes, **self._flags(0.2, "mandatory")}
        )

    def _get(self) -> None:
        self._step("basic.get", {"queue": self._queue(), **self._flags(0.25, "no_ack")})

    def _settle(self) -> None:
        request = self._source.choice(["basic.ack", "basic.ack", "basic.nack", "basic.reject"])
        fields: dict[str, Any] = {"nth": self._source.choice([0, 0, 1, -1])}
        if self._chance(0.05):
            fields = {"dtag": self._source.choice([0, 1, 2, 99])}
        if request != "basic.reject":
            fields |= self._flags(0.25, "multiple")
        if request != "basic.ack":
            fields |= self._flags(0.6, "requeue")
        self._step(request, fields)

    def _reject(self) -> None:
        if self._chance(0.4):
            self._get()
        place = (self.steps[-1].connection, self.steps[-1].arguments["ch"]) if self.steps else None
        self._step(
            self._source.choice(["basic.reject", "basic.nack"]), {"nth": 0, **self._flags(0.15, "requeue")}, place
        )

    def _recover(self) -> None:
        request = self._source.choice(["basic.recover", "basic.recover", "basic.recover_async"])
        self._step(request, {"requeue": not self._chance(0.1)})

    def _qos(self) -> None:
        fields: dict[str, Any] = {"count": self._source.choice([0, 1, 2, 5])}
        if self._chance(0.03):
            fields["size"] = 10
        self._step("basic.qos", {**fields, **self._flags(0.1, "glob")})

    def _consume(self, **more: Any) -> None:
        place = self._place()
        queue = self._consumed.setdefault(place, self._queue())  # two queues on one channel deliver in any order
        tags = self._tags.setdefault(place, [])
        tag = self._source.choice(tags) if tags and self._chance(0.04) else f"c{len(tags)}"
        if self._chance(0.08):
            tag = ""
        else:
            tags.append(tag)
        arguments: dict[str, Any] = dict(more)
        if self._chance(0.25):
            name = self._source.choice(["x-priority", "x-priority", *values.CONSUME_ARGUMENTS])
            usual = values.CONSUME_ARGUMENTS[name]
            arguments[name] = self._source.choice(usual if self._chance(0.3) else usual[:3])
        flags = self._flags(0.2, "no_ack") | self._flags(0.06, "exclusive") | self._flags(0.03, "nowait", "no_local")
        self._step("basic.consume", {"queue": queue, "tag": tag, "args": arguments, **flags}, place)

    def _consume_stream(self) -> None:
        place = self._place()
        if not self._chance(0.1):
            self._step("basic.qos", {"count": self._source.choice([1, 3, 100])}, place)
        queue = self._consumed.setdefault(place, self._queue())
        tags = self._tags.setdefault(place, [])
        tags.append(f"c{len(tags)}")
        arguments = {}
        if self._chance(0.8):
            offsets = values.CONSUME_ARGUMENTS["x-stream-offset"]
            arguments["x-stream-offset"] = self._source.choice(offsets if self._chance(0.2) else offsets[:6])
        fields = {"queue": queue, "tag": tags[-1], "args": arguments, **self._flags(0.05, "no_ack", "exclusive")}
        self._step("basic.consume", fields, place)

    def _cancel(self) -> None:
        places = [place for place, tags in self._tags.items() if tags]
        if not places:
            return
        place = self._source.choice(places)
        tag = "nosuch" if self._chance(0.08) else self._source.choice([*self._tags[place], "<ctag1>"])
        self._step("basic.cancel", {"tag": tag, **self._flags(0.05, "nowait")}, place)

    def _confirm(self) -> None:
        self._step("confirm.select", self._flags(0.1, "nowait"))

    def _tx(self) -> None:
        self._step(self._source.choice(["tx.select", "tx.select", "tx.commit", "tx.rollback"]), {})

    # -- direct reply-to

    def _reply_consume(self) -> None:
        flags = {"no_ack": not self._chance(0.1)} | self._flags(0.05, "exclusive")
        self._step("basic.consume", {"queue": "amq.rabbitmq.reply-to", "tag": "r", **flags})

    def _reply_request(self) -> None:
        properties = {"reply_to": "amq.rabbitmq.reply-to", "correlation_id": "c"}
        self._step("basic.publish", {"key": self._queue(), "body": "request", "properties": properties})
        self._step("basic.get", {"queue": self._queue(), "no_ack": True})

    def _reply_send(self) -> None:
        key = self._source.choice(["<reply1>", "<reply1>", "<reply2>", "amq.rabbitmq.reply-to"])
        self._step("basic.publish", {"key": key, "body": "reply", **self._flags(0.4, "mandatory")})

    def _reply_odd(self) -> None:
        queue = self._source.choice(["amq.rabbitmq.reply-to", "<reply1>"])
        request = self._source.choice(["queue.declare", "queue.declare", "basic.get", "queue.delete", "queue.purge"])
        self._step(request, {"queue": queue, **({"passive": self._chance(0.8)} if request == "queue.declare" else {})})

    # -- channels and connections

    def _close(self) -> None:
        if self._chance(0.6):
            self._step("channel.close", {"code": 200, "text": "bye"})
        else:
            self._step("connection.close", {"code": 200, "text": "bye"}, (self._place()[0], 0))

    def _drop(self) -> None:
        self._step("drop", {}, (self._place()[0], 0))

    def _connection(self) -> None:
        source = self._source
        options: dict[str, Any] = source.choice(
            [
                {},
                {},
                {"tune": {"channel_max": source.choice([0, 1, 2, 5, 2047, 2048])}},
                {"tune": {"frame_max": source.choice([0, 8192, 10000, 131072, 131073])}},
                {"vhost": source.choice(["", "nosuch", "/", "//"])},
                {"mech": source.choice(["PLAIN", "nosuch", "plain"])},
                {"resp": source.choice(["\0guest\0wrong", "\0nobody\0x", "guest", "", "\0guest", "z\0guest\0guest"])},
                {"mech": "AMQPLAIN", "resp": ""},
                {"loc": source.choice(["de_DE", ""])},
                {"capabilities": {}},
            ]
        )
        if options.get("resp") and "mech" not in options and self._chance(0.3):
            options = {**options, "capabilities": {"authentication_failure_close": True}}
        self._step("connect", options, (self._place()[0], 0))

    def _channel(self) -> None:
        source = self._source
        number = source.choice([1, 2, 3, 7])
        choice = source.randrange(9)
        if choice == 0:
            self._step("channel.open", {}, (0, number))
        elif choice == 1:
            self._step("channel.flow", {"active": not self._chance(0.3)}, (0, number))
        elif choice == 2:
            request = source.choice(["queue.declare", "basic.get", "tx.select", "basic.publish", "basic.ack"])
            self._step(request, {"raw": True}, (0, source.choice([number, 0])))
        elif choice == 3:
            self._step("channel.close_ok", self._flags(0.5, "raw"), (0, number))
        elif choice == 4:
            self._step("channel.close", {"code": source.choice([0, 200, 404]), "raw": True}, (0, number))
        elif choice == 5:
            self._step("channel.open", {"raw": True}, (0, source.choice([0, 2047, 2048, 65535])))
        elif choice == 6:
            request = source.choice(
                ["basic.cancel_ok", "basic.deliver", "queue.declare_ok", "basic.get_ok", "channel.flow_ok"]
            )
            self._step(request, {}, (0, number))
        elif choice == 7:
            request = source.choice(
                ["connection.tune_ok", "connection.open", "connection.start_ok", "connection.close_ok"]
            )
            self._step(request, {"mech": "PLAIN"}, (0, source.choice([0, 0, number])))
        else:
            request = source.choice(["connection.update_secret", "access.request", "connection.blocked"])
            self._step(request, {"secret": "x", "reason": "r"}, (0, source.choice([0, number])))

    def _wait(self) -> None:
        """Lets time pass, without looking at the queues: a look prolongs the life of a queue."""
        self._step("wait", {"ms": EXPIRES_MS + 300}, (self._place()[0], 1))

    def _handshake(self) -> None:
        self._step("handshake", {"sent": self._source.choice(_HANDSHAKES)}, (0, 0))

    def _frames(self) -> None:
        frames = self._source.choice(_FRAMES)
        place = self._place()
        self._step("channel.flow", {"active": True}, (place[0], 1))  # opens the channel
        self._step("frames", {"frames": frames}, (place[0], 1))


def _publish_method(key: str = "q0@", **more: Any) -> dict[str, Any]:
    return {"method": "basic.publish", "fields": {"key": key}, **more}


_FRAMES: list[list[dict[str, Any]]] = [
    [_publish_method()],
    [_publish_method(), {"size": 3}],
    [_publish_method(), {"size": 3}, {"body": "ab"}],
    [_publish_method(), {"size": 3}, {"body": "abcd"}],
    [_publish_method(), {"size": 3}, {"body": "ab"}, {"body": "cd"}],
    [_publish_method(), {"size": 3}, {"body": ""}, {"body": "abc"}],
    [_publish_method(), {"size": 0}, {"body": ""}],
    [_publish_method(), {"size": 0}, {"body": "x"}],
    [_publish_method(), {"body": "x"}],
    [_publish_method(), {"size": 3}, {"size": 3}],
    [_publish_method(), _publish_method()],
    [{"size": 3}],
    [{"body": "abc"}],
    [{"body": "", "type": 8}],
    [{"body": "", "type": 8, "ch": 0}],
    [{"body": "abc", "type": 8, "ch": 0}],
    [{"body": "abc", "ch": 0}],
    [{"size": 3, "ch": 0}],
    [{"hex": "", "type": 4}],
    [{"hex": "", "type": 0}],
    [{"hex": "", "type": 1}],
    [{"hex": "003c", "type": 1}],
    [{"hex": "003c00ff", "type": 1}],
    [{"hex": "00ff000a", "type": 1}],
    [{"hex": "003c0050000000", "type": 1}],
    [{"hex": "0032000a0000", "type": 1}],
    [{"hex": "0032000a000003ff", "type": 1}],
    [{"hex": "0014000a00ff", "type": 1}],
    [{"hex": "0032000a000002fffe0000000000", "type": 1}],
    [{"method": "basic.qos", "end": 0}],
    [{"method": "queue.declare", "ch": 9}],
    [{"size": 3, "ch": 9}],
    [_publish_method(), {"hex": "003c0000000000000000", "type": 2}],
    [_publish_method(), {"hex": "0032000000000000000000000000", "type": 2}],
    [_publish_method(), {"hex": "003c00010000000000000000" + "0000", "type": 2}],
    [_publish_method(), {"hex": "003c00000000000000000000ffff", "type": 2}],
    [_publish_method(), {"hex": "003c000000000000000080000161", "type": 2}],
    [_publish_method(), {"hex": "003c00000000000000002000000000050158", "type": 2}],
    [_publish_method(), {"hex": "003c0000000000000000000101", "type": 2}],
    [_publish_method(), {"size": 1 << 40}],
    [_publish_method(), {"size": 134217729}],
    [_publish_method(), {"size": 16777217}],
    [{"hex": "", "type": 1, "length": 131081}],
    [{"hex": "", "type": 3, "length": 4294967295}],
    [_publish_method(), {"size": 131081}, {"body": "x", "times": 131073}],
    [_publish_method(), {"size": 131081}, {"body": "x", "times": 131080}, {"body": "y"}],
    [_publish_method(), {"size": 3}, {"body": "abc", "end": 0}],
    [{"body": "", "type": 8, "end": 1}],
    [_publish_method(), {"hex": "003c00000000000000000000000061", "type": 2}],
    [_publish_method(), {"hex": "003c0000000000000000000020000000000a01615300000000780000", "type": 2}],
    [_publish_method(), {"hex": "003c000000000000000000002000000000030161 58".replace(" ", ""), "type": 2}],
    [_publish_method(), {"hex": "003c0000000000000000000000010002ffff", "type": 2}],
    [_publish_method(), {"hex": "003c000000000000000000000001", "type": 2}],
    [{"hex": "003c0028000000ff02fffe00", "type": 1}],
    [{"hex": "003c002800000002fffe00", "type": 1}, {"size": 1}, {"body": "x"}],
    [{"hex": "0032000a000001710000000005026161", "type": 1}],
    [{"hex": "0032000a000001710000000004016174ff", "type": 1}],
    [{"hex": "0032000a00000171000000000401613fff", "type": 1}],
    [_publish_method(), {"size": 3}, {"method": "basic.qos"}],
    [_publish_method(), {"method": "channel.close"}],
]

_START_OK = {"props": {}, "mech": "PLAIN", "resp": "\0guest\0guest", "loc": "en_US"}
_CLOSING = {"props": {"capabilities": {"authentication_failure_close": True}}, "mech": "PLAIN", "loc": "en_US"}
_TUNE_OK = {"channel_max": 2047, "frame_max": 131072, "heartbeat": 0}


def _method(name: str, ch: int = 0, **fields: Any) -> dict[str, Any]:
    return {"method": name, "fields": fields, "ch": ch}


_HEADER = {"raw": "414d515000000901"}
_LOGIN = [_HEADER, _method("connection.start_ok", **_START_OK)]
_OPEN = [*_LOGIN, _method("connection.tune_ok", **_TUNE_OK), _method("connection.open", vhost="/")]

_HANDSHAKES: list[list[dict[str, Any]]] = [
    [{"raw": "414d515001010009"}],
    [{"raw": "414d5150000009"}, {"raw": "01"}],
    [{"raw": "414d515003010000"}],
    [{"raw": "414d515000000902"}],
    [{"raw": "414d515000000800"}],
    [{"raw": "474554202f20485454502f312e310d0a"}],
    [_HEADER, _HEADER],
    [_HEADER, {"hex": "", "type": 1, "ch": 0, "length": 8193}],
    [_HEADER, {"hex": "", "type": 1, "ch": 0, "length": 8185}],
    [_HEADER, _method("connection.start_ok", **{**_START_OK, "props": {"big": "x" * 8000}})],
    [_HEADER, _method("connection.start_ok", **{**_START_OK, "props": {"big": "x" * 9000}})],
    [_HEADER, _method("connection.tune_ok", **_TUNE_OK)],
    [_HEADER, _method("connection.open", vhost="/")],
    [_HEADER, _method("connection.close", code=200, text="bye")],
    [_HEADER, _method("channel.open", 1)],
    [_HEADER, {"body": "", "type": 8, "ch": 0}],
    [_HEADER, {"body": "abc", "ch": 0}],
    [_HEADER, _method("connection.start_ok", **_START_OK) | {"end": 0}],
    [_HEADER, _method("connection.start_ok", **{**_START_OK, "mech": "AMQPLAIN", "resp": ""})],
    [_HEADER, _method("connection.start_ok", **{**_CLOSING, "resp": "\0guest\0wrong"})],
    [_HEADER, _method("connection.start_ok", **{**_CLOSING, "resp": "\0nobody\0guest"})],
    [_HEADER, _method("connection.start_ok", **{**_CLOSING, "resp": ""})],
    [*_LOGIN, _method("connection.start_ok", **_START_OK)],
    [*_LOGIN, _method("connection.open", vhost="/")],
    [*_LOGIN, _method("connection.close", code=200, text="bye")],
    [*_LOGIN, _method("connection.tune_ok", **{**_TUNE_OK, "channel_max": 0})],
    [*_LOGIN, _method("connection.tune_ok", **{**_TUNE_OK, "frame_max": 8191})],
    [*_LOGIN, _method("connection.tune_ok", **{**_TUNE_OK, "frame_max": 8192}), _method("connection.open", vhost="/")],
    [*_LOGIN, _method("connection.tune_ok", **_TUNE_OK), _method("channel.open", 1)],
    [*_LOGIN, _method("connection.tune_ok", **_TUNE_OK), _method("connection.close", code=200, text="bye")],
    [*_LOGIN, _method("connection.tune_ok", **_TUNE_OK), _method("connection.open", vhost="nosuch")],
    [*_LOGIN, _method("connection.tune_ok", **_TUNE_OK), {"hex": "000aff00", "type": 1, "ch": 0}],
    [*_LOGIN, _method("connection.tune_ok", **_TUNE_OK), {"hex": "", "type": 1, "ch": 0, "length": 131073}],
    [*_OPEN, _method("connection.open", vhost="/")],
    [*_OPEN, _method("connection.close", code=200, text="bye"), _method("channel.open", 1)],
    [*_OPEN, _method("connection.close_ok")],
    [*_OPEN, _method("channel.open", 1), _method("channel.open", 1)],
    [*_OPEN, _method("channel.open", 1), _method("connection.close", code=200, text="bye")],
]
