"""Heartbeats: one each half interval, and an end after two silent ones."""

from __future__ import annotations

from trimq.clock import ManualTime
from trimq.protocols.amqp.heartbeats import Heartbeats


class Peer:
    def __init__(self) -> None:
        self.time = ManualTime(10_000)
        self.receive_count = 0
        self.happened: list[tuple[str, int]] = []
        self.heartbeats = Heartbeats(
            self.time, 2, lambda: self.receive_count, lambda: self.note("sent"), lambda: self.note("silent")
        )
        self.receive_count += 1  # the bytes that opened the connection

    def note(self, event: str) -> None:
        self.happened.append((event, self.time.now_ms() - 10_000))

    def pass_time(self, until_ms: int) -> None:
        while self.time.step(10_000 + until_ms):
            pass


def test_a_silent_client_is_dropped_after_three_intervals() -> None:
    peer = Peer()
    peer.pass_time(60_000)
    assert peer.happened == [*(("sent", second * 1000) for second in range(1, 6)), ("silent", 6000)]


def test_a_client_that_sends_anything_stays_connected() -> None:
    peer = Peer()
    for second in range(0, 60, 3):
        peer.receive_count += 1
        peer.pass_time(second * 1000)
    assert all(event == "sent" for event, _ in peer.happened)


def test_nothing_is_sent_after_the_end() -> None:
    peer = Peer()
    peer.heartbeats.stop()
    peer.pass_time(60_000)
    assert peer.happened == []
