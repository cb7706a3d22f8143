"""Policies: selection by pattern and priority, and their merge with queue arguments."""

from __future__ import annotations

from typing import Any

import pytest
from core.queueing_world import CALLER, World

from trimq.core.queues.policies import Policy
from trimq.errors import InvalidSetting, Refusal
from trimq.errors.queues import InvalidArgument


def define(world: World, name: str, pattern: str, priority: int = 0, apply_to: str = "all", **terms: Any) -> None:
    definition = {key.replace("_", "-"): value for key, value in terms.items()}
    world.broker.policies.define(CALLER, Policy("", name, pattern, definition, priority, apply_to))
    world.settle()


def test_a_policy_applies_to_existing_and_to_new_queues() -> None:
    world = World()
    queue = world.queue("orders.1")
    other = world.queue("payments")
    define(world, "short", "^orders", max_length=2)
    later = world.queue("orders.2")
    for name in ("orders.1", "orders.2", "payments"):
        world.publish(name, b"0", b"1", b"2", b"3")
    assert [found.ready_count for found in (queue, later, other)] == [2, 2, 4]
    world.restart()
    world.publish("orders.1", b"4")
    assert world.drain("orders.1") == [b"3", b"4"]
    world.broker.policies.delete(CALLER, "short")
    world.publish("orders.1", *[b"x"] * 10)
    assert len(world.drain("orders.1")) == 10


def test_the_policy_of_highest_priority_applies_and_of_two_limits_the_lower() -> None:
    world = World()
    define(world, "low", ".*", priority=1, message_ttl=50, max_length=1)
    define(world, "high", "^q", priority=9, max_length=5)
    queue = world.queue("q", max_length=3)
    assert queue.settings.max_length == 3
    assert queue.settings.ttl_ms is None
    assert world.queue("q2").settings.max_length == 5
    assert world.queue("other").settings.ttl_ms == 50


def test_a_policy_may_apply_to_one_kind_only() -> None:
    world = World()
    define(world, "quorum", ".*", apply_to="quorum_queues", delivery_limit=3)
    assert world.queue("c").settings.delivery_limit is None
    assert world.queue("k", queue_type="quorum").settings.delivery_limit == 3


def test_a_policy_sets_dead_letter_and_alternate_exchanges() -> None:
    world = World()
    world.queue("dead")
    define(world, "dlx", "^q$", dead_letter_exchange="", dead_letter_routing_key="dead")
    define(world, "ae", "^x$", apply_to="exchanges", alternate_exchange="amq.fanout")
    world.queue()
    world.publish("q", b"rejected")
    delivery = world.get()
    assert delivery is not None
    world.reject(delivery)
    assert world.drain("dead") == [b"rejected"]
    world.exchange("x")
    world.bind("amq.fanout", "q")
    assert world.publish("nothing", b"unrouted", exchange="x")[0].is_routed
    assert world.drain() == [b"unrouted"]


@pytest.mark.parametrize(
    ("policy", "refusal"),
    [
        (Policy("", "p", "(", {"max-length": 1}), InvalidSetting),
        (Policy("", "p", ".*", {}), InvalidSetting),
        (Policy("", "p", ".*", {"ha-mode": "all"}), InvalidSetting),
        (Policy("", "p", ".*", {"max-priority": 5}), InvalidSetting),
        (Policy("", "p", ".*", {"queue-mode": "odd"}), InvalidSetting),
        (Policy("", "p", ".*", {"queue-leader-locator": "min-masters"}), InvalidSetting),
        (Policy("", "p", ".*", {"max-in-memory-length": -1}), InvalidSetting),
        (Policy("", "p", ".*", {"max-in-memory-length": "5"}), InvalidSetting),
        (Policy("", "p", ".*", {"delayed-retry-type": "all"}), InvalidSetting),
        (Policy("", "p", ".*", {"delayed-retry-min": 5, "delayed-retry-max": 4}), InvalidSetting),
        (Policy("", "p", ".*", {"dead-letter-strategy": "odd"}), InvalidArgument),
        (Policy("", "p", ".*", {"stream-filter-size-bytes": 5}), InvalidArgument),
        (Policy("", "p", ".*", {"expires": 0}), InvalidArgument),
        (Policy("", "p", ".*", {"max-length": True}), InvalidSetting),
        (Policy("", "p", ".*", {"max-length": -1}), InvalidArgument),
        (Policy("", "p", ".*", {"max-length": 1}, 0, "nothing"), InvalidSetting),
    ],
)
def test_a_policy_that_cannot_be_enforced_is_refused(policy: Policy, refusal: type[Refusal]) -> None:
    world = World()
    with pytest.raises(refusal):
        world.broker.policies.define(CALLER, policy)
    assert world.broker.policies.all(CALLER) == []


@pytest.mark.parametrize(
    "definition",
    [
        {"max-length": 5, "max-age": "1h"},
        {"message-ttl": 1000, "max-age": "1h"},
        {"max-length": 5, "delivery-limit": 3},
        {"queue-mode": "lazy"},
        {"queue-version": 1},
        {"dead-letter-strategy": "at-least-once"},
        {"dead-letter-routing-key": "x"},
        {"stream-max-segment-size-bytes": 1_000_000},
        {"stream-filter-size-bytes": 32},
        {"queue-leader-locator": "balanced"},
        {"max-in-memory-length": 5},
        {"max-in-memory-bytes": 5},
        {"initial-cluster-size": 1},
        {"target-group-size": 3},
        {"consumer-disconnected-timeout": 5},
        {"delivery-limit": -7},
        {"delayed-retry-type": "all", "delayed-retry-min": 1000},
    ],
)
def test_policy_keys_that_rabbitmq_accepts_are_accepted_and_break_no_queue(definition: dict[str, Any]) -> None:
    world = World()
    world.broker.policies.define(CALLER, Policy("", "p", ".*", definition))
    for kind in ("classic", "quorum", "stream"):
        assert world.queue(kind, queue_type=kind).kind == kind
    world.restart()
    assert [policy.definition for policy in world.broker.policies.all(CALLER)] == [definition]


@pytest.mark.parametrize(
    ("kind", "definition", "has"),
    [
        ("classic", {"max-length": 5, "delivery-limit": 3}, 7),
        ("quorum", {"max-length": 5, "delivery-limit": 3}, 5),
        ("classic", {"max-length": 5, "max-age": "1h"}, 7),
        ("quorum", {"max-length": 5, "max-age": "1h"}, 7),
        ("classic", {"max-length": 5, "queue-mode": "lazy"}, 5),
        ("quorum", {"max-length": 5, "queue-mode": "lazy"}, 7),
        ("classic", {"max-length": 5, "consumer-timeout": 1000}, 5),
        ("classic", {"max-length": 5, "stream-filter-size-bytes": 32}, 5),
    ],
)
def test_a_policy_does_not_apply_to_a_kind_without_its_keys(kind: str, definition: dict[str, Any], has: int) -> None:
    world = World()
    world.broker.policies.define(CALLER, Policy("", "high", ".*", definition, 5))
    world.broker.policies.define(CALLER, Policy("", "low", ".*", {"max-length": 7}, 1))
    assert world.queue(queue_type=kind).settings.max_length == has


@pytest.mark.parametrize(
    ("kind", "own", "terms", "holds"),
    [
        ("quorum", {"delivery_limit": 2}, {"delivery_limit": 100}, {"delivery_limit": 2}),
        ("quorum", {"delivery_limit": 100}, {"delivery_limit": 2}, {"delivery_limit": 2}),
        ("quorum", {"delivery_limit": -1}, {"delivery_limit": 100}, {"delivery_limit": 100}),
        ("quorum", {"delivery_limit": 3}, {"delivery_limit": -7}, {"delivery_limit": 3}),
        ("quorum", {}, {"delivery_limit": 100}, {"delivery_limit": 100}),
        ("quorum", {}, {"delivery_limit": -7}, {"delivery_limit": None}),
        ("classic", {"message_ttl": 9, "expires": 5}, {"message_ttl": 5, "expires": 9}, {"ttl_ms": 5, "expires_ms": 5}),
        ("classic", {"overflow": "drop-head"}, {"overflow": "reject-publish"}, {"overflow": "drop-head"}),
        ("quorum", {"overflow": "drop-head"}, {"overflow": "reject-publish"}, {"overflow": "reject-publish"}),
        ("classic", {}, {"overflow": "reject-publish"}, {"overflow": "reject-publish"}),
        (
            "classic",
            {"dead_letter_exchange": ""},
            {"dead_letter_exchange": "x", "dead_letter_routing_key": "k"},
            {"dead_letter_exchange": "", "dead_letter_key": "k"},
        ),
        ("classic", {}, {"dead_letter_routing_key": "k"}, {"dead_letter_key": None}),
        (
            "quorum",
            {"dead_letter_strategy": "at-most-once"},
            {"dead_letter_strategy": "at-least-once"},
            {"dead_letter_strategy": "at-most-once"},
        ),
        (
            "quorum",
            {"dead_letter_exchange": "x"},
            {"dead_letter_strategy": "at-least-once"},
            {"dead_letter_strategy": "at-least-once"},
        ),
        (
            "quorum",
            {"delayed_retry_type": "failed", "delayed_retry_min": 9},
            {"delayed_retry_type": "all", "delayed_retry_min": 5},
            {"retry_type": "all", "retry_min_ms": 5},
        ),
        ("stream", {"max_age": "1h"}, {"max_age": "2h"}, {"max_age_ms": 7_200_000}),
        ("stream", {"max_length_bytes": 10}, {"max_length_bytes": 20}, {"max_bytes": 20}),
        ("stream", {}, {"stream_max_segment_size_bytes": 1000}, {"segment_bytes": 1000}),
        ("classic", {"message_deduplication": False}, {"message_deduplication": True}, {"is_deduplicating": True}),
    ],
)
def test_arguments_override_policies_and_of_two_limits_the_lower_applies(
    kind: str, own: dict[str, Any], terms: dict[str, Any], holds: dict[str, Any]
) -> None:
    world = World()
    define(world, "p", ".*", **terms)
    settings = world.queue(queue_type=kind, **own).settings
    assert {name: getattr(settings, name) for name in holds} == holds
    world.restart()
    assert world.broker.queues.queues(CALLER)[0].settings == settings


def test_a_policy_applies_to_predeclared_exchanges_after_a_restart_too() -> None:
    world = World()
    world.queue()
    world.exchange("found", "fanout")
    world.bind("found", "q")
    define(world, "ae", "^amq.direct$", apply_to="exchanges", alternate_exchange="found")
    define(world, "ae2", "^new$", apply_to="exchanges", alternate_exchange="found")
    world.exchange("new")
    world.restart()
    world.publish("nobody", b"a", exchange="amq.direct")
    world.publish("nobody", b"b", exchange="new")
    assert world.drain() == [b"a", b"b"]


def test_a_new_limit_shortens_a_long_queue_over_several_turns() -> None:
    world = World()
    queue = world.queue()
    world.publish("q", *[b"x"] * 3000)
    world.broker.policies.define(CALLER, Policy("", "short", ".*", {"max-length": 1}))
    world.runner.end_pass()
    assert 1000 <= queue.ready_count < 3000
    world.settle()
    assert queue.ready_count == 1


def test_a_new_segment_size_applies_to_the_next_segment() -> None:
    world = World()
    log = world.queue("s", queue_type="stream").logs[0]
    world.publish("s", *[b"x" * 100] * 10)
    assert len(log.segments) == 1
    define(world, "small", "^s$", stream_max_segment_size_bytes=500)
    world.publish("s", *[b"x" * 100] * 10)
    several = len(log.segments)
    assert several > 2
    world.broker.policies.delete(CALLER, "small")
    world.publish("s", *[b"x" * 100] * 20)
    assert len(log.segments) <= several + 1
