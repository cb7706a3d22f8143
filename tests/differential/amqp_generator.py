"""Generator of AMQP sequences."""

from __future__ import annotations

import random
from typing import Any

from differential.sequences import Step


def generate(source: random.Random) -> list[Step]:
    steps = []
    for _ in range(25):
        request, fields = source.choice(_THIN)(source)
        steps.append(Step(source.randrange(2), request, {"ch": source.choice([1, 1, 2]), **fields}))
    return steps


def _queue(source: random.Random) -> str:
    return source.choice(["q0@", "q1@"])


_THIN: list[Any] = [
    lambda source: ("queue.declare", {"queue": _queue(source), "durable": True}),
    lambda source: ("queue.bind", {"queue": _queue(source), "exchange": "amq.direct", "key": "k"}),
    lambda source: (
        "basic.publish",
        {"exchange": source.choice(["", "amq.direct"]), "key": _queue(source), "body": "m"},
    ),
    lambda source: ("basic.get", {"queue": _queue(source)}),
    lambda source: ("basic.ack", {"nth": 0}),
    lambda source: ("queue.delete", {"queue": _queue(source)}),
]
