"""Policies: by pattern and priority, beside what queues say themselves."""

from __future__ import annotations

from typing import Any

import pytest
from core.queueing_world import CALLER, World

from trimq.core.policies import Policy
from trimq.core.queue_refusals import InvalidArgument
from trimq.errors import InvalidSetting, Refusal


def define(world: World, name: str, pattern: str, priority: int = 0, apply_to: str = "all", **said: Any) -> None:
    definition = {key.replace("_", "-"): value for key, value in said.items()}
    world.verbs.define_policy(CALLER, Policy("", name, pattern, definition, priority, apply_to))
    world.settle()


def test_a_policy_holds_for_queues_that_are_there_and_that_come() -> None:
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
    world.verbs.delete_policy(CALLER, "short")
    world.publish("orders.1", *[b"x"] * 10)
    assert len(world.drain("orders.1")) == 10


def test_the_highest_priority_wins_and_of_two_limits_the_lower() -> None:
    world = World()
    define(world, "low", ".*", priority=1, message_ttl=50, max_length=1)
    define(world, "high", "^q", priority=9, max_length=5)
    queue = world.queue("q", max_length=3)
    assert queue.settings.max_length == 3
    assert queue.settings.ttl_ms is None
    assert world.queue("q2").settings.max_length == 5
    assert world.queue("other").settings.ttl_ms == 50


def test_a_policy_may_be_for_one_kind_only() -> None:
    world = World()
    define(world, "quorum", ".*", apply_to="quorum_queues", delivery_limit=3)
    assert world.queue("c").settings.delivery_limit is None
    assert world.queue("k", queue_type="quorum").settings.delivery_limit == 3


def test_a_policy_gives_dead_letters_and_alternates() -> None:
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
        (Policy("", "p", ".*", {"max-length": True}), InvalidSetting),
        (Policy("", "p", ".*", {"max-length": -1}), InvalidArgument),
        (Policy("", "p", ".*", {"max-length": 1}, 0, "nothing"), InvalidSetting),
    ],
)
def test_what_cannot_be_enforced_is_refused(policy: Policy, refusal: type[Refusal]) -> None:
    world = World()
    with pytest.raises(refusal):
        world.verbs.define_policy(CALLER, policy)
    assert world.verbs.policies(CALLER) == []


def test_a_policy_holds_for_exchanges_that_are_always_there_after_a_restart_too() -> None:
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


def test_a_limit_that_comes_late_empties_a_long_queue_in_turns() -> None:
    world = World()
    queue = world.queue()
    world.publish("q", *[b"x"] * 3000)
    world.verbs.define_policy(CALLER, Policy("", "short", ".*", {"max-length": 1}))
    world.runner.end_pass()
    assert 1000 <= queue.ready_count < 3000
    world.settle()
    assert queue.ready_count == 1
