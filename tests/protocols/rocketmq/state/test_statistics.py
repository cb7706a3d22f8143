"""Traffic of the last minute, hour and day."""

from __future__ import annotations

from trimq.protocols.rocketmq.state.statistics import Traffic, TrafficCounter, TrafficSum, TrafficWindows

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
MIDNIGHT = 19_000 * DAY


def test_windows_hold_the_traffic_of_their_time() -> None:
    flow = TrafficCounter()
    flow.add(MIDNIGHT, 1, 10)
    flow.add(MIDNIGHT + 30 * MINUTE, 2, 20)
    now_ms = MIDNIGHT + 45 * MINUTE
    flow.add(now_ms - 30_000, 4, 40)
    flow.add(now_ms, 8, 80)
    assert flow.windows(now_ms) == TrafficWindows(TrafficSum(12, 120), TrafficSum(15, 150), TrafficSum(15, 150))
    later_ms = now_ms + 2 * HOUR
    assert flow.windows(later_ms) == TrafficWindows(TrafficSum(), TrafficSum(), TrafficSum(15, 150))
    assert flow.windows(later_ms + DAY) == TrafficWindows(TrafficSum(), TrafficSum(), TrafficSum())
    assert flow.total() == TrafficSum(15, 150)


def test_the_count_at_the_beginning_of_a_day_is_known() -> None:
    flow = TrafficCounter()
    flow.add(MIDNIGHT - DAY - 1, 1, 0)
    flow.add(MIDNIGHT - DAY, 2, 0)
    flow.add(MIDNIGHT - 1, 4, 0)
    flow.add(MIDNIGHT, 8, 0)
    now_ms = MIDNIGHT + 23 * HOUR
    assert (flow.before_today(now_ms, 0), flow.before_today(now_ms, 1), flow.total().messages) == (7, 1, 15)


def test_long_life_takes_no_more_memory() -> None:
    flow = TrafficCounter()
    for step in range(5000):
        flow.add(MIDNIGHT + step * 600_000, 1, 1)
    assert sum(map(len, flow._kept)) <= 60 + 6 + 49
    assert flow.total() == TrafficSum(5000, 5000)


def test_forgotten_topics_still_count_for_the_broker() -> None:
    traffic = Traffic()
    traffic.count_sent("a", MIDNIGHT, 5)
    traffic.count_sent("b", MIDNIGHT, 7)
    traffic.count_read("a", "g", MIDNIGHT, 3, 30)
    traffic.count_returned("a", "g", MIDNIGHT)
    traffic.forget_topic("a")
    assert (traffic.sent("a"), traffic.read("a", "g"), traffic.returned("a", "g")) == (None, None, None)
    assert (traffic.all_sent().total(), traffic.all_read().total()) == (TrafficSum(2, 12), TrafficSum(3, 30))
    traffic.count_read("b", "g", MIDNIGHT, 1, 10)
    traffic.forget_group("g")
    assert (traffic.read("b", "g"), traffic.all_read().total()) == (None, TrafficSum(4, 40))
