"""Retry policy of a consumer group, set by its administrator: exponential delays, or a list of delays. gRPC clients
receive the policy and apply it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

SETTING = "retry_policy"
"""Key in the settings of a group."""

_Milliseconds = Annotated[int, Meta(ge=1, le=30 * 86_400_000)]
_MAX_STEPS = 100


class Exponential(msgspec.Struct, frozen=True):
    initial: _Milliseconds = 5000
    max: _Milliseconds = 7_200_000
    multiplier: Annotated[float, Meta(ge=1, le=1000)] = 2


class Customized(msgspec.Struct, frozen=True, omit_defaults=True):
    """List of delays. None: the delay levels of the broker."""

    next: Annotated[list[_Milliseconds], Meta(min_length=1, max_length=_MAX_STEPS)] | None = None


class RetryPolicy(msgspec.Struct, frozen=True, omit_defaults=True):
    """In the JSON form of Apache RocketMQ."""

    type: Literal["CUSTOMIZED", "EXPONENTIAL"] = "CUSTOMIZED"
    exponentialRetryPolicy: Exponential | None = None
    customizedRetryPolicy: Customized | None = None

    @property
    def exponential(self) -> Exponential | None:
        """None: the policy is a list of delays."""
        return (self.exponentialRetryPolicy or Exponential()) if self.type == "EXPONENTIAL" else None

    def steps_ms(self, levels_ms: Sequence[int]) -> Sequence[int]:
        steps = None if self.customizedRetryPolicy is None else self.customizedRetryPolicy.next
        return levels_ms if steps is None else steps

    def described(self) -> dict[str, Any]:
        shown: dict[str, Any] = msgspec.to_builtins(self)
        return {"type": self.type, **shown}


def read_policy(given: object) -> str:
    """Returns the text to store in the group's settings. Raises msgspec.ValidationError if the value is no valid
    policy."""
    return msgspec.json.encode(msgspec.convert({} if given is None else given, RetryPolicy)).decode()


def policy_of(settings: Mapping[str, str]) -> RetryPolicy:
    text = settings.get(SETTING)
    return _DEFAULT if text is None else msgspec.json.decode(text, type=RetryPolicy)


_DEFAULT = RetryPolicy()


def describe_policy(settings: Mapping[str, str]) -> dict[str, Any]:
    """Returns the policy in the JSON form of Apache RocketMQ."""
    return policy_of(settings).described() if SETTING in settings else _DEFAULT_SHOWN


_DEFAULT_SHOWN = _DEFAULT.described()
