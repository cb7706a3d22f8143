"""Slow and failed brokers."""

from __future__ import annotations

import pytest

from trimq.client.messages import MessageQueue
from trimq.client.sending.latency import BrokerHealth, outage_ms
from trimq.clock import ManualTime

A, B = MessageQueue("t", "a", 0), MessageQueue("t", "b", 0)


@pytest.mark.parametrize(
    ("response_ms", "out_ms"),
    [
        *((0, 0), (50, 0), (100, 0), (549, 0), (550, 2000), (1800, 5000), (3000, 6000), (5000, 10_000)),
        *((14_999, 10_000), (15_000, 30_000), (99_999, 30_000)),
    ],
)
def test_outages_are_those_of_apache(response_ms: int, out_ms: int) -> None:
    assert outage_ms(response_ms) == out_ms


def test_a_slow_broker_is_left_out_until_its_time_is_over() -> None:
    time = ManualTime(0)
    health = BrokerHealth(time.now_ms)
    health.record("a", 600, 0)
    assert health.has_outages
    assert health.usable((A, B)) == (B,)
    time.step(1999)
    assert health.usable((A, B)) == (B,)
    time.step(2000)
    assert health.usable((A, B)) == (A, B)
    assert not health.has_outages


def test_a_fast_response_lets_a_broker_back_at_once() -> None:
    health = BrokerHealth(ManualTime(0).now_ms)
    health.failed("a")
    assert health.usable((A, B)) == (B,)
    health.record("a", 3, 0)
    assert health.usable((A, B)) == (A, B)


def test_if_all_brokers_are_out_the_least_bad_one_is_used() -> None:
    health = BrokerHealth(ManualTime(0).now_ms)
    health.failed("a")
    health.record("b", 600, 0)
    assert health.usable((A, B)) == (B,)


def test_nobody_is_left_out_if_that_is_off() -> None:
    health = BrokerHealth(ManualTime(0).now_ms, avoid_slow=False)
    health.failed("a")
    assert not health.has_outages
