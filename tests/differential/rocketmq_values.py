"""Values of generated remoting requests: names, queues, offsets, filters, and fields that are damaged."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from differential.sequences import Step

Fields = dict[str, str]
Kind = Callable[[random.Random, int], Step]
"""Makes a request of one kind, sent over the given connection."""
Story = Callable[[random.Random], list[Step]]
"""Makes several requests that depend on each other."""

ODD = ("", "-1", "0", "1", "7", "abc", "2147483648", "9223372036854775807", "1.5", "true", "None", " 1")
"""Values for any field."""

TAG_CODES = {"red": 112785, "blue": 3027034}
"""Java's hash codes."""

NAME_SERVER = 10
"""Connections from this number on are those to the name server."""

ONE_QUEUE = "$q0"
"""Topic with one queue, so that a broker has no choice."""
READ_ONLY = "$r0"


def request(connection: int, name: str, code: int, fields: Fields, **more: Any) -> Step:
    return Step(connection, name, {"code": code, "fields": fields, **more})


def pause(seconds: float) -> Step:
    return Step(0, "pause", {"pause": seconds})


def asked(connection: int, code: int) -> Step:
    """Waits for a request of the broker."""
    return Step(connection, f"asked {code}", {"asked": code})


def topic(source: random.Random) -> str:
    return source.choice(["$t0", "$t0", "$t0", "$t1", "$t2", ONE_QUEUE])


def group(source: random.Random) -> str:
    return source.choice(["$g0", "$g0", "$g1", "$g2"])


def queue(source: random.Random) -> str:
    return source.choice(["0", "0", "0", "1", "3", "4", "9", "-1"])


def offset(source: random.Random) -> str:
    return source.choice(["0", "0", "1", "2", "3", "5", "100", "-1"])


def flag(source: random.Random) -> str:
    return source.choice(["true", "false"])


def of_group(name: str, code: int, field: str = "consumerGroup") -> Kind:
    def make(source: random.Random, connection: int) -> Step:
        return request(connection, name, code, {field: group(source)})

    return make


def of_topic(name: str, code: int) -> Kind:
    def make(source: random.Random, connection: int) -> Step:
        return request(connection, name, code, {"topic": topic(source)})

    return make


def of_queue(name: str, code: int) -> Kind:
    def make(source: random.Random, connection: int) -> Step:
        return request(connection, name, code, {"topic": topic(source), "queueId": queue(source)})

    return make


def damaged(source: random.Random, step: Step) -> Step:
    """The same request with one field that is missing or odd."""
    fields = dict(step.arguments.get("fields", {}))
    # A name that does not depend on the run is left behind, and is seen by other sequences.
    choice = [name for name, value in fields.items() if "$" not in value]
    if not choice:
        return step
    name = source.choice(choice)
    if source.random() < 0.4:
        del fields[name]
    else:
        # Another position of the log may be that of a message of another sequence.
        fields[name] = source.choice(["", "abc", "1.5"] if step.request == "view message" else ODD)
    if fields.get("e") == "-1":  # each broker would choose a queue at random
        fields["e"] = "0"
    return Step(step.connection, step.request, {**step.arguments, "fields": fields, "damaged": name})
