"""How long a group waits before it tries a message again, as its administrator has set it: in steps that grow, or in
such as are told one by one. Clients that speak gRPC are told it, and keep to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

SETTING = "retry_policy"
"""Its name among the settings of a group."""

_Milliseconds = Annotated[int, Meta(ge=1, le=30 * 86_400_000)]
_MOST_STEPS = 100


class Exponential(msgspec.Struct, frozen=True):
    initial: _Milliseconds = 5000
    max: _Milliseconds = 7_200_000
    multiplier: Annotated[float, Meta(ge=1, le=1000)] = 2


class Customized(msgspec.Struct, frozen=True, omit_defaults=True):
    """None: the levels of delayed messages."""

    next: Annotated[list[_Milliseconds], Meta(min_length=1, max_length=_MOST_STEPS)] | None = None


class RetryPolicy(msgspec.Struct, frozen=True, omit_defaults=True):
    """As RocketMQ writes it."""

    type: Literal["CUSTOMIZED", "EXPONENTIAL"] = "CUSTOMIZED"
    exponentialRetryPolicy: Exponential | None = None
    customizedRetryPolicy: Customized | None = None

    @property
    def exponential(self) -> Exponential | None:
        """None: the steps are told one by one."""
        return (self.exponentialRetryPolicy or Exponential()) if self.type == "EXPONENTIAL" else None

    def steps_ms(self, levels_ms: Sequence[int]) -> Sequence[int]:
        told = None if self.customizedRetryPolicy is None else self.customizedRetryPolicy.next
        return levels_ms if told is None else told

    def described(self) -> dict[str, Any]:
        shown: dict[str, Any] = msgspec.to_builtins(self)
        return {"type": self.type, **shown}


def read_policy(given: object) -> str:
    """The text that a group keeps. msgspec.ValidationError: it is no policy."""
    return msgspec.json.encode(msgspec.convert({} if given is None else given, RetryPolicy)).decode()


def policy_of(settings: Mapping[str, str]) -> RetryPolicy:
    return msgspec.json.decode(settings.get(SETTING, "{}"), type=RetryPolicy)
