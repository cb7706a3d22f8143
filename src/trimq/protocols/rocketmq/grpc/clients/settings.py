"""Settings that the broker sends to gRPC clients: the requested ones, except those that the broker decides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trimq.core.commit_log.groups import CommitLogGroup
from trimq.protocols.rocketmq.clients.retry_policies import policy_of
from trimq.protocols.rocketmq.grpc.clients.message_view import set_ms
from trimq.protocols.rocketmq.grpc.wire import wire
from trimq.protocols.rocketmq.grpc.wire.enums import Language

_PRODUCER_ATTEMPTS = 3
_PRODUCER_BACKOFF_MS = (10, 1000)
BATCH_SIZE = 32
LONG_POLL_MS = 20_000
_LITE_QUOTA, _LITE_NAME = 2000, 64

# Index of the delay level of the first retry: the third level.
_FIRST_LEVEL = 2


def producer_settings(asked: Any, message_bytes: int) -> Any:
    settings = _copy(asked)
    first_ms, max_ms = _PRODUCER_BACKOFF_MS
    settings.backoff_policy.CopyFrom(_exponential(_PRODUCER_ATTEMPTS, first_ms, max_ms))
    settings.publishing.max_body_size = message_bytes
    settings.publishing.validate_message_type = True
    return settings


def consumer_settings(asked: Any, group: CommitLogGroup, levels_ms: Sequence[int]) -> Any:
    settings = _copy(asked)
    attempts = group.retry_limit + 1
    policy = policy_of(group.settings)
    levels_ms = policy.steps_ms(levels_ms)
    if (growing := policy.exponential) is not None:
        settings.backoff_policy.CopyFrom(_exponential(attempts, growing.initial, growing.max, growing.multiplier))
    elif asked.user_agent.language == Language.NODE_JS:
        # The Node.js client knows exponential backoff only: with another policy it retries at once, without end.
        first_ms = levels_ms[min(_FIRST_LEVEL, len(levels_ms) - 1)]
        settings.backoff_policy.CopyFrom(_exponential(attempts, first_ms, levels_ms[-1]))
    else:
        settings.backoff_policy.CopyFrom(_customised(attempts, levels_ms))
    subscription = settings.subscription
    subscription.fifo = group.is_orderly
    subscription.receive_batch_size = BATCH_SIZE
    set_ms(subscription.long_polling_timeout, LONG_POLL_MS)
    subscription.lite_subscription_quota = _LITE_QUOTA
    subscription.max_lite_topic_size = _LITE_NAME
    return settings


def _copy(asked: Any) -> Any:
    settings = wire.Settings()
    settings.CopyFrom(asked)
    settings.ClearField("backoff_policy")
    settings.ClearField("metric")
    settings.metric.SetInParent()
    return settings


def _exponential(attempts: int, first_ms: int, max_ms: int, multiplier: float = 2.0) -> Any:
    policy = wire.RetryPolicy(max_attempts=attempts)
    set_ms(policy.exponential_backoff.initial, first_ms)
    set_ms(policy.exponential_backoff.max, max_ms)
    policy.exponential_backoff.multiplier = multiplier
    return policy


def _customised(attempts: int, levels_ms: Sequence[int]) -> Any:
    policy = wire.RetryPolicy(max_attempts=attempts)
    for level_ms in levels_ms:
        set_ms(policy.customized_backoff.next.add(), level_ms)
    return policy
