"""Queue arguments (`x-…`): validation, comparison and conversion to settings. Pure: tables in, settings out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from trimq.errors.queues import ArgumentNotForKind, Inequivalent, InvalidArgument, InvalidProperty
from trimq.formats.amqp_content.field_tables import Value

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

_LOCATORS = ("client-local", "balanced", "random", "least-leaders", "min-masters")  # without effect: there is one node
_MAX_STREAM_SEGMENT_BYTES = 3_000_000_000

# Consumer arguments that only one kind of queue accepts. All other arguments are accepted or ignored by every kind.
CONSUMER_ARGUMENTS = {
    "x-consumer-timeout": QUORUM,
    "x-stream-offset": STREAM,
    "x-stream-filter": STREAM,
    "x-stream-match-unfiltered": STREAM,
}

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
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.refuse(argument, "no number")
        if value < 0:
            raise self.refuse(argument, "negative")
        if value < least:
            raise self.refuse(argument, "zero")
        if most is not None and value > most:
            raise self.refuse(argument, "too large")
        return int(value)

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
        number, unit = value[:-1], value[-1:]
        if not (number.isascii() and number.isdigit()) or unit not in _AGE_UNITS_MS:
            raise self.refuse(argument, "unknown")
        return int(number) * _AGE_UNITS_MS[unit]


# The kinds of queue for which RabbitMQ knows each argument. As in RabbitMQ, other arguments are stored without effect.
_ALL, _NOT_STREAM = KINDS, (CLASSIC, QUORUM)
_KNOWN: dict[str, tuple[str, ...]] = {
    "x-queue-type": _ALL,
    "x-message-ttl": _NOT_STREAM,
    "x-expires": _NOT_STREAM,
    "x-max-length": _NOT_STREAM,
    "x-max-length-bytes": _ALL,
    "x-overflow": _NOT_STREAM,
    "x-dead-letter-exchange": _NOT_STREAM,
    "x-dead-letter-routing-key": _NOT_STREAM,
    "x-dead-letter-strategy": (QUORUM,),
    "x-max-priority": (CLASSIC,),
    "x-single-active-consumer": _NOT_STREAM,
    "x-delivery-limit": (QUORUM,),
    "x-consumer-timeout": (QUORUM,),
    "x-queue-mode": (CLASSIC,),
    "x-queue-version": (CLASSIC,),
    "x-max-age": (STREAM,),
    "x-stream-max-segment-size-bytes": (STREAM,),
    "x-stream-filter-size-bytes": (STREAM,),
    "x-initial-cluster-size": (STREAM,),
    "x-quorum-initial-group-size": (QUORUM,),
    "x-queue-leader-locator": _ALL,
    "x-max-in-memory-length": (QUORUM,),  # without effect, as in RabbitMQ; so is the next
    "x-max-in-memory-bytes": (QUORUM,),
    "x-consumer-disconnected-timeout": (QUORUM,),  # without effect: about other nodes
    "x-delayed-retry-type": (QUORUM,),
    "x-delayed-retry-min": (QUORUM,),
    "x-delayed-retry-max": (QUORUM,),
    "x-message-deduplication": _NOT_STREAM,  # argument and header of RabbitMQ's deduplication plugin
}


def has_argument(kind: str, argument: str) -> bool:
    """True if queues of this kind have the argument."""
    return kind in _KNOWN.get(argument, ())


def kind_of(name: str, namespace: str, table: Mapping[str, Value]) -> str:
    return QueueArguments(name, namespace, table).choice("x-queue-type", KINDS, CLASSIC)


def read_settings(name: str, namespace: str, table: Mapping[str, Value]) -> QueueSettings:
    """Raises InvalidArgument or ArgumentNotForKind for arguments that RabbitMQ rejects or that cannot be enforced."""
    arguments = QueueArguments(name, namespace, table)
    kind = kind_of(name, namespace, table)
    for argument in table:
        if kind not in _KNOWN.get(argument, KINDS):
            raise ArgumentNotForKind(argument, name, namespace, kind)
    exchange = arguments.text("x-dead-letter-exchange")
    key = arguments.text("x-dead-letter-routing-key")
    if key is not None and exchange is None:
        raise arguments.refuse("x-dead-letter-routing-key", "no exchange")
    overflow = arguments.choice("x-overflow", _OVERFLOWS, DROP_HEAD)
    if overflow == REJECT_PUBLISH_DLX and kind == QUORUM:
        overflow = DROP_HEAD  # as in RabbitMQ
    arguments.number("x-stream-filter-size-bytes", least=16, most=255)
    arguments.choice("x-queue-leader-locator", _LOCATORS, _LOCATORS[0])
    if table.get("x-queue-version", 2) != 2:
        raise arguments.refuse("x-queue-version", "unknown")
    return QueueSettings(
        kind,
        arguments.number("x-message-ttl", most=MAX_MILLISECONDS),
        arguments.number("x-expires", least=1, most=MAX_MILLISECONDS),
        arguments.number("x-max-length"),
        arguments.number("x-max-length-bytes"),
        overflow,
        exchange,
        key,
        QUORUM_PRIORITIES - 1 if kind == QUORUM else arguments.number("x-max-priority", most=MAX_PRIORITY) or 0,
        arguments.boolean("x-single-active-consumer"),
        _delivery_limit(arguments, kind, table),
        arguments.age_ms("x-max-age"),
        arguments.number("x-consumer-timeout", least=1, most=MAX_MILLISECONDS),
        arguments.boolean("x-message-deduplication"),
        arguments.number("x-stream-max-segment-size-bytes", most=_MAX_STREAM_SEGMENT_BYTES) or None,
        arguments.choice("x-delayed-retry-type", _RETRIES, RETRY_DISABLED),
        arguments.number("x-delayed-retry-min", most=MAX_MILLISECONDS),
        arguments.number("x-delayed-retry-max", most=MAX_MILLISECONDS),
        arguments.choice("x-dead-letter-strategy", _STRATEGIES, AT_MOST_ONCE),
    )


def _delivery_limit(arguments: QueueArguments, kind: str, table: Mapping[str, Value]) -> int | None:
    """Returns None if there is no limit, which -1 requests."""
    if table.get("x-delivery-limit") == -1:
        return None
    limit = arguments.number("x-delivery-limit")
    return DEFAULT_DELIVERY_LIMIT if limit is None and kind == QUORUM else limit


def check_properties(
    name: str, namespace: str, kind: str, is_durable: bool, is_exclusive: bool, is_auto_delete: bool
) -> None:
    """Raises InvalidProperty for a quorum queue or stream that is non-durable, exclusive or auto-delete."""
    if kind == CLASSIC:
        return
    for property, is_wrong in (
        ("non-durable", not is_durable),
        ("exclusive-owner", is_exclusive),
        ("auto-delete", is_auto_delete),
    ):
        if is_wrong:
            raise InvalidProperty(property, name, namespace)


def require_equivalent(name: str, namespace: str, now: Mapping[str, Value], wanted: Mapping[str, Value]) -> None:
    """Raises Inequivalent if a known argument differs. Compares by value: the integer width on the wire is ignored."""
    for argument in _KNOWN:
        received, current = wanted.get(argument), now.get(argument)
        if argument == "x-queue-type":
            received, current = received or CLASSIC, current or CLASSIC
        if received != current or isinstance(received, bool) != isinstance(current, bool):
            raise Inequivalent("queue", name, namespace, argument, received, current)


def level_of_priority(priority: int, settings: QueueSettings) -> int:
    """Returns the number of the log for messages of this priority. In a quorum queue, log 0 is the one for messages
    without a priority."""
    wanted = min(priority, settings.max_priority)
    return (wanted - QUORUM_DEFAULT_PRIORITY) % QUORUM_PRIORITIES if settings.kind == QUORUM else wanted


def priority_of_level(level: int, settings: QueueSettings) -> int:
    """Returns the priority of the messages in the log of this level."""
    return (level + QUORUM_DEFAULT_PRIORITY) % QUORUM_PRIORITIES if settings.kind == QUORUM else level
