"""Queue arguments (`x-…`): validation, comparison and conversion to settings. Pure: tables in, settings out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeGuard

from trimq.errors.queues import NOT_GIVEN, ArgumentNotForKind, Inequivalent, InvalidArgument, InvalidProperty
from trimq.formats.amqp_content.field_tables import FieldTable, Timestamp, Value
from trimq.formats.amqp_content.value_comparison import is_same_value

CLASSIC, QUORUM, STREAM = "classic", "quorum", "stream"
KINDS = (CLASSIC, QUORUM, STREAM)

DROP_HEAD, REJECT_PUBLISH, REJECT_PUBLISH_DLX = "drop-head", "reject-publish", "reject-publish-dlx"
_OVERFLOWS = (DROP_HEAD, REJECT_PUBLISH, REJECT_PUBLISH_DLX)

AT_MOST_ONCE, AT_LEAST_ONCE = _STRATEGIES = ("at-most-once", "at-least-once")

# Ten years, RabbitMQ's limit.
MAX_MILLISECONDS = 315_360_000_000
DEFAULT_DELIVERY_LIMIT = 20
MAX_PRIORITY = 255
QUORUM_PRIORITIES = 32
QUORUM_DEFAULT_PRIORITY = 4  # of a message without a priority

RETRY_ALL, RETRY_FAILED, RETRY_RETURNED, RETRY_DISABLED = _RETRIES = ("all", "failed", "returned", "disabled")

STREAM_POSITIONS = ("first", "last", "next")

_LOCATORS = ("client-local", "balanced", "random", "least-leaders", "min-masters")  # without effect: there is one node
_MAX_STREAM_SEGMENT_BYTES = 3_000_000_000

_AGE_UNITS_MS = {
    "Y": 31_536_000_000,
    "M": 2_592_000_000,
    "D": 86_400_000,
    "h": 3_600_000,
    "m": 60_000,
    "s": 1000,
}


class QueueSettings(NamedTuple):
    """Settings of one queue. None: no such limit."""

    kind: str = CLASSIC
    ttl_ms: int | None = None
    expires_ms: int | None = None
    max_length: int | None = None
    max_bytes: int | None = None
    overflow: str = DROP_HEAD
    dead_letter_exchange: str | None = None
    dead_letter_key: str | None = None
    max_priority: int = 0
    is_single_active: bool = False
    delivery_limit: int | None = None
    max_age_ms: int | None = None
    consumer_timeout_ms: int | None = None
    is_deduplicating: bool = False
    segment_bytes: int | None = None
    retry_type: str = RETRY_DISABLED
    retry_min_ms: int | None = None
    retry_max_ms: int | None = None
    dead_letter_strategy: str = AT_MOST_ONCE

    @property
    def is_dead_letter_at_least_once(self) -> bool:
        """True if dead letters are published at least once. RabbitMQ requires `reject-publish` for that; with any other
        overflow behaviour the strategy is ignored."""
        is_asked = self.dead_letter_strategy == AT_LEAST_ONCE and self.kind == QUORUM
        return is_asked and self.overflow == REJECT_PUBLISH and self.dead_letter_exchange is not None


class QueueArguments:
    """Typed access to the arguments of one queue. Raises InvalidArgument for values of a wrong type or range."""

    def __init__(self, name: str, namespace: str, table: Mapping[str, Value]) -> None:
        self._name = name
        self._namespace = namespace
        self._table = table

    def refuse(self, argument: str, reason: str) -> InvalidArgument:
        value = self._table.get(argument)
        return InvalidArgument(argument, "queue", self._name, self._namespace, reason, value)

    def number(self, argument: str, least: int = 0, most: int | None = None) -> int | None:
        value = self._table.get(argument)
        if argument not in self._table:
            return None
        if not is_integer(value):
            raise self.refuse(argument, "no number")
        if value < 0:
            raise self.refuse(argument, "negative")
        if value < least:
            raise self.refuse(argument, "zero")
        if most is not None and value > most:
            raise self.refuse(argument, "too large")
        return int(value)

    def integer(self, argument: str) -> int:
        value = self._table.get(argument)
        if not is_integer(value):
            raise self.refuse(argument, "no number")
        return value

    def stream_offset(self, argument: str) -> Value:
        """A position, an age, a number or a timestamp. RabbitMQ fails with an internal error for other types."""
        value = self._table.get(argument)
        is_text = isinstance(value, str) and (value in STREAM_POSITIONS or read_age_ms(value) is not None)
        if not is_text and not is_integer(value) and not isinstance(value, Timestamp):
            raise self.refuse(argument, "unknown")
        return value

    def text(self, argument: str) -> str | None:
        value = self._table.get(argument)
        if argument not in self._table:
            return None
        if not isinstance(value, str):
            raise self.refuse(argument, "no text")
        return value

    def boolean(self, argument: str) -> bool:
        value = self._table.get(argument, False)
        if not isinstance(value, bool):
            raise self.refuse(argument, "no boolean")
        return value

    def choice(self, argument: str, choices: tuple[str, ...], default: str) -> str:
        value = self.text(argument)
        if value is None:
            return default
        if value not in choices:
            raise self.refuse(argument, "unknown")
        return value

    def age_ms(self, argument: str) -> int | None:
        value = self.text(argument)
        if value is None:
            return None
        age_ms = read_age_ms(value)
        if age_ms is None:
            raise self.refuse(argument, "unknown")
        return age_ms

    def dead_letter_key(self, argument: str) -> str | None:
        key = self.text(argument)
        if key is not None and "x-dead-letter-exchange" not in self._table:
            raise self.refuse(argument, "no exchange")
        return key

    def version(self, argument: str) -> int | None:
        version = self.number(argument)
        if version not in (None, 2):
            raise self.refuse(argument, "unknown")
        return version

    def delivery_limit(self, argument: str) -> int | None:
        """Returns -1 if a negative number says that there is no limit."""
        value = self._table.get(argument)
        return -1 if is_integer(value) and value < 0 else self.number(argument)


def is_integer(value: Value) -> TypeGuard[int]:
    """True for a number of an integer type; a boolean and a timestamp are none."""
    return isinstance(value, int) and not isinstance(value, bool | Timestamp)


def read_age_ms(text: str) -> int | None:
    """Reads an age such as `7D`; None if it is invalid."""
    number, unit = text[:-1], text[-1:]
    if not (number.isascii() and number.isdigit()) or int(number) == 0 or unit not in _AGE_UNITS_MS:
        return None
    return int(number) * _AGE_UNITS_MS[unit]


# Arguments that RabbitMQ knows for each kind of queue, in the order in which it compares them when a queue is declared
# again. As in RabbitMQ, those that no kind knows are stored without effect. The last one of work queues is an argument
# and header of RabbitMQ's deduplication plugin.
_ARGUMENTS: dict[str, tuple[str, ...]] = {
    CLASSIC: (
        "x-expires",
        "x-message-ttl",
        "x-dead-letter-exchange",
        "x-dead-letter-routing-key",
        "x-max-length",
        "x-max-length-bytes",
        "x-max-priority",
        "x-overflow",
        "x-queue-mode",
        "x-queue-version",
        "x-single-active-consumer",
        "x-queue-type",
        "x-queue-master-locator",
        "x-queue-leader-locator",
        "x-message-deduplication",
    ),
    QUORUM: (
        "x-dead-letter-exchange",
        "x-dead-letter-routing-key",
        "x-dead-letter-strategy",
        "x-expires",
        "x-max-length",
        "x-max-length-bytes",
        "x-max-in-memory-length",  # without effect, as in RabbitMQ; so is the next
        "x-max-in-memory-bytes",
        "x-overflow",
        "x-single-active-consumer",
        "x-queue-type",
        "x-quorum-initial-group-size",
        "x-delivery-limit",
        "x-message-ttl",
        "x-queue-leader-locator",
        "x-consumer-disconnected-timeout",  # without effect: about other nodes
        "x-consumer-timeout",
        "x-delayed-retry-type",
        "x-delayed-retry-min",
        "x-delayed-retry-max",
        "x-message-deduplication",
    ),
    STREAM: (
        "x-max-length-bytes",
        "x-queue-type",
        "x-max-age",
        "x-stream-max-segment-size-bytes",
        "x-stream-filter-size-bytes",
        "x-initial-cluster-size",
        "x-queue-leader-locator",
    ),
}
_KNOWN = frozenset(argument for arguments in _ARGUMENTS.values() for argument in arguments)

_Check = Callable[[QueueArguments, str], Value]


def _number(least: int = 0, most: int | None = None) -> _Check:
    return lambda arguments, name: arguments.number(name, least, most)


def _choice(*choices: str) -> _Check:
    return lambda arguments, name: arguments.choice(name, choices, "")


# Checks of values, in RabbitMQ's order: the first one that fails is reported.
_CHECKS: dict[str, _Check] = {
    "x-expires": _number(1, MAX_MILLISECONDS),
    "x-message-ttl": _number(0, MAX_MILLISECONDS),
    "x-dead-letter-exchange": QueueArguments.text,
    "x-dead-letter-routing-key": QueueArguments.dead_letter_key,
    "x-dead-letter-strategy": _choice(*_STRATEGIES),
    "x-max-length": _number(),
    "x-max-length-bytes": _number(),
    "x-max-in-memory-length": _number(),
    "x-max-in-memory-bytes": _number(),
    "x-max-priority": _number(0, MAX_PRIORITY),
    "x-overflow": _choice(*_OVERFLOWS),
    "x-queue-version": QueueArguments.version,
    "x-single-active-consumer": QueueArguments.boolean,
    "x-consumer-timeout": _number(),
    "x-consumer-disconnected-timeout": _number(),
    "x-quorum-initial-group-size": _number(1),
    "x-max-age": QueueArguments.age_ms,
    "x-stream-max-segment-size-bytes": _number(),
    "x-stream-filter-size-bytes": _number(),
    "x-initial-cluster-size": _number(1),
    "x-queue-leader-locator": _choice(*_LOCATORS),
}

# Checks of values that RabbitMQ would store without effect, and its last one of streams.
_LATER_CHECKS: dict[str, _Check] = {
    "x-delivery-limit": QueueArguments.delivery_limit,
    "x-delayed-retry-type": _choice(*_RETRIES),
    "x-delayed-retry-min": _number(0, MAX_MILLISECONDS),
    "x-delayed-retry-max": _number(0, MAX_MILLISECONDS),
    "x-message-deduplication": QueueArguments.boolean,
    "x-stream-max-segment-size-bytes": _number(0, _MAX_STREAM_SEGMENT_BYTES),
    "x-stream-filter-size-bytes": _number(16, 255),
}


# Arguments of consumers, by kind of queue. Those that no kind knows are ignored.
_CONSUMER_ARGUMENTS: dict[str, tuple[str, ...]] = {
    CLASSIC: ("x-priority",),
    QUORUM: ("x-priority", "x-consumer-timeout"),
    STREAM: ("x-stream-offset", "x-stream-filter", "x-stream-match-unfiltered"),
}
_KNOWN_TO_CONSUMERS = frozenset(argument for arguments in _CONSUMER_ARGUMENTS.values() for argument in arguments)
_CONSUMER_CHECKS: dict[str, _Check] = {
    "x-priority": QueueArguments.integer,
    "x-consumer-timeout": _number(),
    "x-stream-offset": QueueArguments.stream_offset,
}


def check_consumer_arguments(name: str, namespace: str, kind: str, table: Mapping[str, Value]) -> None:
    """Raises InvalidArgument or ArgumentNotForKind for arguments of a consumer that RabbitMQ rejects."""
    arguments = QueueArguments(name, namespace, table)
    known = _CONSUMER_ARGUMENTS[kind]
    for argument, check in _CONSUMER_CHECKS.items():
        if argument in table and argument in known:
            check(arguments, argument)
    for argument in table:
        if argument in _KNOWN_TO_CONSUMERS and argument not in known:
            raise ArgumentNotForKind(argument, name, namespace, kind)


def has_argument(kind: str, argument: str) -> bool:
    """True if queues of this kind have the argument."""
    return argument in _ARGUMENTS[kind]


def kind_of(name: str, namespace: str, table: Mapping[str, Value]) -> str:
    if table.get("x-queue-type") in ("", "undefined"):  # as in RabbitMQ: the default
        return CLASSIC
    return QueueArguments(name, namespace, table).choice("x-queue-type", KINDS, CLASSIC)


def check_arguments(name: str, namespace: str, table: Mapping[str, Value]) -> str:
    """Raises InvalidArgument or ArgumentNotForKind for arguments that RabbitMQ rejects whatever the properties of the
    queue are. Returns the kind of the queue."""
    arguments = QueueArguments(name, namespace, table)
    arguments.text("x-dead-letter-exchange")
    kind = kind_of(name, namespace, table)
    known = _ARGUMENTS[kind]
    for argument, check in _CHECKS.items():
        if argument in table and argument in known:
            check(arguments, argument)
    for argument in table if "x-queue-type" in table else sorted(table):  # RabbitMQ sorts what it adds the type to
        if argument in _KNOWN and argument not in known:
            raise ArgumentNotForKind(argument, name, namespace, kind)
    return kind


def read_settings(name: str, namespace: str, table: Mapping[str, Value]) -> QueueSettings:
    """Raises InvalidArgument or ArgumentNotForKind for arguments that RabbitMQ rejects or that cannot be enforced."""
    kind = check_arguments(name, namespace, table)
    arguments = QueueArguments(name, namespace, table)
    for argument, check in _LATER_CHECKS.items():
        if argument in table:
            check(arguments, argument)
    return _make_settings(kind, arguments)


def _make_settings(kind: str, arguments: QueueArguments) -> QueueSettings:
    overflow = arguments.text("x-overflow") or DROP_HEAD
    if overflow == REJECT_PUBLISH_DLX and kind == QUORUM:
        overflow = DROP_HEAD  # as in RabbitMQ
    return QueueSettings(
        kind,
        arguments.number("x-message-ttl"),
        arguments.number("x-expires"),
        arguments.number("x-max-length"),
        arguments.number("x-max-length-bytes"),
        overflow,
        arguments.text("x-dead-letter-exchange"),
        arguments.text("x-dead-letter-routing-key"),
        QUORUM_PRIORITIES - 1 if kind == QUORUM else arguments.number("x-max-priority") or 0,
        arguments.boolean("x-single-active-consumer"),
        _delivery_limit(arguments, kind),
        arguments.age_ms("x-max-age"),
        arguments.number("x-consumer-timeout"),
        arguments.boolean("x-message-deduplication"),
        arguments.number("x-stream-max-segment-size-bytes") or None,
        arguments.text("x-delayed-retry-type") or RETRY_DISABLED,
        arguments.number("x-delayed-retry-min"),
        arguments.number("x-delayed-retry-max"),
        arguments.text("x-dead-letter-strategy") or AT_MOST_ONCE,
    )


def _delivery_limit(arguments: QueueArguments, kind: str) -> int | None:
    """Returns None if there is no limit."""
    if kind != QUORUM:
        return None
    limit = arguments.delivery_limit("x-delivery-limit")
    if limit is None:
        return DEFAULT_DELIVERY_LIMIT
    return None if limit < 0 else limit


def check_properties(
    name: str, namespace: str, kind: str, is_durable: bool, is_exclusive: bool, is_auto_delete: bool
) -> None:
    """Raises InvalidProperty for a quorum queue or stream that is auto-delete, exclusive or non-durable."""
    if kind == CLASSIC:
        return
    for property, is_wrong in (
        ("auto-delete", is_auto_delete),
        ("exclusive-owner", is_exclusive),
        ("non-durable", not is_durable),
    ):
        if is_wrong:
            raise InvalidProperty(property, name, namespace)


def require_equivalent(name: str, namespace: str, now: Mapping[str, Value], wanted: Mapping[str, Value]) -> None:
    """Raises Inequivalent for the first argument of the existing queue's kind that differs. The values are only
    compared: a queue that exists can be declared again with arguments that would be invalid for a new one."""
    default: FieldTable = {"x-queue-type": CLASSIC}
    now, wanted = {**default, **now}, {**default, **wanted}
    for argument in _ARGUMENTS[kind_of(name, namespace, now)]:
        received: object = wanted.get(argument, NOT_GIVEN)
        current: object = now.get(argument, NOT_GIVEN)
        if argument == "x-max-age":
            received, current = _in_milliseconds(received), _in_milliseconds(current)
        if not is_same_value(received, current):
            raise Inequivalent("queue", name, namespace, argument, received, current)


def _in_milliseconds(age: object) -> object:
    """Returns a valid age as RabbitMQ compares it: `1h` is the same as `60m`."""
    age_ms = read_age_ms(age) if isinstance(age, str) else None
    return age if age_ms is None else str(age_ms)


def level_of_priority(priority: int, settings: QueueSettings) -> int:
    """Returns the number of the log for messages of this priority. In a quorum queue, log 0 is the one for messages
    without a priority."""
    wanted = min(priority, settings.max_priority)
    return (wanted - QUORUM_DEFAULT_PRIORITY) % QUORUM_PRIORITIES if settings.kind == QUORUM else wanted


def priority_of_level(level: int, settings: QueueSettings) -> int:
    """Returns the priority of the messages in the log of this level."""
    return (level + QUORUM_DEFAULT_PRIORITY) % QUORUM_PRIORITIES if settings.kind == QUORUM else level
