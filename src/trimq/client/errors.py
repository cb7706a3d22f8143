"""Exceptions of the client, and those that a handler raises to decide about its message."""

from __future__ import annotations

from datetime import timedelta
from typing import NamedTuple


class ClientError(Exception):
    """Anything that the client reports to its caller."""


class Closed(ClientError):
    """The client, consumer or connection was closed before the operation ended."""


class ConnectionLost(ClientError):
    """The connection could not be opened, or ended before the response. The request may have been executed."""


class TimedOut(ClientError, TimeoutError):
    """The time given for the operation is over. The request may have been executed."""


class NoRoute(ClientError):
    """No name server knows the topic, or no broker of it can be reached in the way that is needed."""


class Unsupported(ClientError):
    """The broker cannot do this. Raised before anything is sent."""


class Refused(ClientError):
    """The broker refused the request. `code` is RocketMQ's response code."""

    def __init__(self, code: int, remark: str | None, address: str) -> None:
        super().__init__(f"{address} refused the request with code {code}: {remark or 'no reason given'}")
        self.code = code
        self.remark = remark or ""
        self.address = address


class Attempt(NamedTuple):
    """One try of a send: where it went, its error, and how long it took."""

    broker: str
    queue: int
    error: Exception
    milliseconds: int


class SendFailed(ClientError):
    """All tries of a send failed. `attempts` lists them in order."""

    def __init__(self, topic: str, attempts: tuple[Attempt, ...]) -> None:
        last = attempts[-1]
        super().__init__(
            f"topic {topic}: not sent after {len(attempts)} tries, last to broker {last.broker}, queue {last.queue}: "
            f"{last.error}"
        )
        self.topic = topic
        self.attempts = attempts
        self.__cause__ = last.error


class SendTimedOut(SendFailed, TimedOut):
    """The time given for a send is over; the last try got no response, and may have been executed."""


class BufferFull(ClientError):
    """Too many messages wait for their response. Await some of them, or raise the limit."""


class BadMessage(ClientError, ValueError):
    """The message cannot be sent as it is."""


class BadBatch(BadMessage):
    """A message of a batch breaks a rule of batches. `index` is its place."""

    def __init__(self, index: int, rule: str) -> None:
        super().__init__(f"message {index} of the batch: {rule}")
        self.index = index


class SubscriptionConflict(ClientError):
    """Another member of the group subscribes to other topics or with another filter."""


# -- raised by handlers


class Retry(Exception):
    """Raised by a handler: deliver this message again, after `after` or by the group's policy."""

    def __init__(self, reason: str = "", *, after: timedelta | float | None = None) -> None:
        super().__init__(reason or "the handler asked for a retry")
        self.after = after


class GiveUp(Exception):
    """Raised by a handler: move this message to the group's dead-letter topic."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason or "the handler gave the message up")
