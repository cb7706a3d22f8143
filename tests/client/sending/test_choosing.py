"""Choice of queues. Check 7 of the acceptance list: keys on few moves, round robin even."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimq.client.errors import BadMessage
from trimq.client.messages import Message, MessageQueue
from trimq.client.sending.choosing import ByKey, BySelector, LeastLatency, RoundRobin, elsewhere
from trimq.client.sending.latency import BrokerHealth
from trimq.clock import ManualTime

PLAIN = Message(b"x")


def queues(count: int, broker: str = "a") -> tuple[MessageQueue, ...]:
    return tuple(MessageQueue("orders", broker, number) for number in range(count))


def health(time: ManualTime | None = None) -> BrokerHealth:
    return BrokerHealth((time or ManualTime(0)).now_ms)


def test_round_robin_counts_differ_by_one() -> None:
    choice, chosen = RoundRobin(Random(1)), Counter[MessageQueue]()
    for _ in range(1003):
        chosen[choice.choose(queues(8), PLAIN, health(), None)] += 1
    assert len(chosen) == 8
    assert max(chosen.values()) - min(chosen.values()) == 1


def test_a_key_has_one_queue_and_growth_moves_a_ninth_of_10_000_keys() -> None:
    choice, moved = ByKey(), 0
    for number in range(10_000):
        message = Message(b"x", key=f"order-{number}")
        before = choice.choose(queues(8), message, health(), None)
        assert before == choice.choose(queues(8), message, health(), before)
        after = choice.choose(queues(9), message, health(), None)
        if before != after:
            moved += 1
            assert after.id == 8  # keys move to the new queue alone
    assert abs(moved / 10_000 - 1 / 9) <= 0.03


def test_by_key_refuses_a_message_without_a_key() -> None:
    with pytest.raises(BadMessage, match="key"):
        ByKey().choose(queues(2), PLAIN, health(), None)


def test_a_function_chooses_and_is_checked() -> None:
    choice = BySelector(lambda found, message: found[len(message.body) % len(found)])
    assert choice.choose(queues(4), Message(b"123"), health(), None).id == 3
    with pytest.raises(BadMessage, match="no writable queue"):
        BySelector(lambda found, message: MessageQueue("orders", "z", 9)).choose(queues(4), PLAIN, health(), None)


@given(st.integers(1, 4), st.integers(1, 4))
def test_a_further_try_goes_to_another_broker_or_else_to_another_queue(count: int, brokers: int) -> None:
    all_queues = tuple(queue for number in range(brokers) for queue in queues(count, f"b{number}"))
    for avoided in all_queues:
        others = elsewhere(all_queues, avoided)
        assert others
        if brokers > 1:
            assert all(queue.broker != avoided.broker for queue in others)
        elif count > 1:
            assert avoided not in others


def test_least_latency_takes_the_fastest_broker_and_goes_round_its_queues() -> None:
    time = ManualTime(0)
    known, choice = health(time), LeastLatency(Random(1))
    known.record("fast", 5, 0)
    known.record("slow", 200, 0)
    chosen = Counter(choice.choose(queues(4, "fast") + queues(4, "slow"), PLAIN, known, None) for _ in range(100))
    assert {queue.broker for queue in chosen} == {"fast"}
    assert set(chosen.values()) == {25}


def test_least_latency_tries_a_slow_broker_again_after_a_while() -> None:
    time = ManualTime(0)
    known, choice = health(time), LeastLatency(Random(1))
    known.record("fast", 5, 0)
    known.record("slow", 200, 0)
    for second in range(1, 60):
        time.step(second * 1000)
        known.record("fast", 5, time.now_ms())
        if choice.choose(queues(1, "fast") + queues(1, "slow"), PLAIN, known, None).broker == "slow":
            break
    assert 4 <= second <= 8
