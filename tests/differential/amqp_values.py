"""Values for the arguments of AMQP sequences: usual, borderline and invalid ones."""

from __future__ import annotations

from typing import Any

from differential.amqp_policies import PREFIXES

QUEUES = ["q0@", "q1@", "q2@", "q3@"]
EXCHANGES = ["e0@", "e1@", "e2@"]
POLICY_QUEUES = [f"{prefix}@" for prefix in PREFIXES if prefix != "p-other"]
POLICY_EXCHANGES = ["p-other@", "e0@", "e1@"]
KEYS = ["dead", "a", "a.b", "a.b.c", "b", "", "q0@", "q1@", "#", "*"]
PATTERNS = ["dead", "a", "a.*", "a.#", "#", "*", "*.b", "#.c", "a.*.c", "", "b", "q0@", "a..b", "*.#", "#.#"]
EXCHANGE_TYPES = ["direct", "fanout", "topic", "headers"]
HASH_EXCHANGE = "h0@"
"""Of the type x-modulus-hash. It has one binding: which of several it chooses depends on a hash, as documented."""
ODD_EXCHANGE_TYPES = ["", "Direct", "nosuch", "x-nosuch"]

TYPED: list[Any] = [
    {"$": "b", "v": -5},
    {"$": "B", "v": 200},
    {"$": "s", "v": -300},
    {"$": "u", "v": 40000},
    {"$": "i", "v": 7},
    {"$": "l", "v": 1 << 40},
    {"$": "f", "v": 0.5},
    {"$": "D", "v": [2, 314]},
    {"$": "T", "v": 1000},
    {"$": "x", "v": "raw"},
]

ODD_NUMBERS: list[Any] = [-1, "5", True, 1.5, None, [], {}, (1 << 63) - 1, -(1 << 63), "", {"$": "x", "v": "5"}]
ODD_NUMBERS += [{"$": "D", "v": [0, 5]}, {"$": "B", "v": 5}, {"$": "u", "v": 5}, {"$": "T", "v": 5}]
ODD_TEXTS: list[Any] = [5, True, None, [], {}, 1.5, "", "nosuch", {"$": "x", "v": "text"}]

# Usual values by argument; then those that are on the edge or invalid.
QUEUE_ARGUMENTS: dict[str, tuple[list[Any], list[Any]]] = {
    "x-message-ttl": ([0, 20, 600000], [0, 4294967295, 4294967296, 315360000000, 315360000001, *ODD_NUMBERS]),
    "x-expires": ([600000, 3600000], [0, 4294967296, 315360000001, *ODD_NUMBERS]),
    "x-max-length": ([0, 1, 2, 3], [1 << 40, *ODD_NUMBERS]),
    "x-max-length-bytes": ([0, 10, 30, 100000], [1 << 40, *ODD_NUMBERS]),
    "x-overflow": (["drop-head", "reject-publish", "reject-publish-dlx"], ["drop-tail", "Drop-Head", *ODD_TEXTS]),
    "x-dead-letter-exchange": (["", "e0@", "e1@", "amq.direct", "missing@"], ODD_TEXTS),
    "x-dead-letter-routing-key": (["q0@", "q1@", "a.b", ""], ODD_TEXTS),
    "x-dead-letter-strategy": (["at-most-once", "at-least-once"], ODD_TEXTS),
    "x-max-priority": ([1, 5, 10], [0, 255, 256, *ODD_NUMBERS]),
    "x-single-active-consumer": ([True], [False, "true", 1, None]),
    "x-delivery-limit": ([0, 1, 2], [-1, -2, *ODD_NUMBERS]),
    "x-queue-mode": (["lazy", "default"], ODD_TEXTS),
    "x-queue-version": ([2], [1, 3, *ODD_NUMBERS]),
    "x-queue-leader-locator": (["client-local", "balanced"], ["random", "min-masters", *ODD_TEXTS]),
    "x-queue-master-locator": (["client-local"], ODD_TEXTS),
    "x-max-age": (["1h", "7D"], ["0s", "1", "h", "1x", "-1h", "1.5h", "1hh", *ODD_TEXTS]),
    "x-stream-max-segment-size-bytes": ([100000], [0, 1, 3000000000, 3000000001, *ODD_NUMBERS]),
    "x-stream-filter-size-bytes": ([16, 255], [15, 256, *ODD_NUMBERS]),
    "x-initial-cluster-size": ([1], [0, 3, *ODD_NUMBERS]),
    "x-quorum-initial-group-size": ([1], [0, 3, *ODD_NUMBERS]),
    "x-max-in-memory-length": ([10], ODD_NUMBERS),
    "x-max-in-memory-bytes": ([10], ODD_NUMBERS),
    "x-consumer-timeout": ([3600000], [0, *ODD_NUMBERS]),
    "x-consumer-disconnected-timeout": ([60000], ODD_NUMBERS),
    "x-delayed-retry-type": (["all", "failed", "returned", "disabled"], ODD_TEXTS),
    "x-delayed-retry-min": ([10, 10, 600000], [0, *ODD_NUMBERS]),
    "x-delayed-retry-max": ([10, 20, 600000], [0, *ODD_NUMBERS]),
    "x-queue-type": (["classic", "quorum", "stream"], ["Quorum", *ODD_TEXTS]),
    "x-unknown": ([1, "text"], [None, [1, "a"], {"a": 1}]),
    "alternate-exchange": (["e0@"], [5]),
}

OF_CLASSIC_AND_QUORUM = [
    "x-message-ttl",
    "x-expires",
    "x-max-length",
    "x-max-length-bytes",
    "x-overflow",
    "x-dead-letter-exchange",
    "x-dead-letter-routing-key",
]

BY_KIND = {
    "classic": [
        *OF_CLASSIC_AND_QUORUM,
        "x-max-priority",
        "x-single-active-consumer",
        "x-queue-mode",
        "x-queue-version",
        "x-queue-leader-locator",
    ],
    "quorum": [
        *OF_CLASSIC_AND_QUORUM,
        "x-dead-letter-strategy",
        "x-single-active-consumer",
        "x-delivery-limit",
        "x-quorum-initial-group-size",
        "x-queue-leader-locator",
        "x-max-in-memory-length",
        "x-consumer-timeout",
    ],
    "stream": [
        "x-max-length-bytes",
        "x-max-age",
        "x-stream-max-segment-size-bytes",
        "x-stream-filter-size-bytes",
        "x-initial-cluster-size",
        "x-queue-leader-locator",
    ],
}

EXCHANGE_ARGUMENTS: dict[str, list[Any]] = {
    "alternate-exchange": ["e0@", "e1@", "amq.fanout", "missing@", "", 5, None, True],
    "hash-header": ["h"],
    "hash-property": ["message_id", "nosuch", 5],
    "x-unknown": [1, "text", None],
}

CONSUME_ARGUMENTS: dict[str, list[Any]] = {
    "x-priority": [0, 1, 5, -3, "5", True, 1.5, None, 1 << 40, {"$": "B", "v": 5}],
    "x-stream-offset": ["first", "last", "next", 0, 1, 100, -1, "nosuch", "1h", "1x", True, None, 1.5],
    "x-stream-filter": ["a", ["a", "b"], 5, ""],
    "x-stream-match-unfiltered": [True, False, "x"],
    "x-unknown": [1, None],
}

BIND_ARGUMENTS: list[dict[str, Any]] = [
    {},
    {"x-match": "all", "h": 1},
    {"x-match": "any", "h": 1, "g": "x"},
    {"x-match": "any"},
    {"x-match": "all"},
    {"x-match": "all-with-x", "x-h": 1},
    {"x-match": "any-with-x", "x-h": 1},
    {"h": None},
    {"h": "1"},
    {"h": 1.0},
    {"x-match": "nosuch", "h": 1},
    {"x-match": 5},
    {"x-unknown": 5},
    {"h": {"$": "l", "v": 1}},
    {"h": [1]},
    {"h": True},
]

HEADERS: list[dict[str, Any]] = [
    {},
    {"h": 1},
    {"h": "1", "g": "x"},
    {"h": 1.0},
    {"h": None},
    {"h": True},
    {"x-h": 1},
    {"h": {"$": "l", "v": 1}},
    {"nested": {"a": [1, "b", {"c": None}], "d": False}},
    {"all": TYPED},
    {"x-death": [{"queue": "q9", "reason": "rejected", "count": 3}]},
    {"x-first-death-queue": "q9"},
    {"x-delay": 5},
    {"x-stream-filter-value": "a"},
    {"x-delivery-count": 7},
    {"x-acquired-count": 7},
    {"é": "ü"},
    {"h": [1]},
    {"a": 1, "A": 2, "": 3},
]

CARBON_COPIES: list[dict[str, Any]] = [
    {"CC": ["q0@", "q1@"]},
    {"BCC": ["q0@"]},
    {"CC": ["q1@"], "BCC": ["q2@"]},
    {"CC": "q0@"},
    {"BCC": 5},
    {"CC": [5]},
    {"CC": []},
    {"CC": ["q0@", "q0@"]},
    {"BCC": [{"$": "x", "v": "q0@"}]},
    {"CC": None},
]

EXPIRATIONS = ["0", "20", "600000", "315360000000", "315360000001", "-1", "", "abc", "1.5", " 5", "5 ", "+5", "05"]
EXPIRATIONS += ["99999999999999999999", "1e3", "٣"]
