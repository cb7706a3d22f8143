"""Unfinished TLS handshakes: their time and their number are bounded, and a newcomer is never the one who yields."""

from __future__ import annotations

from trimq.clock import ManualTime
from trimq.server.connection.handshakes import Handshake, Handshakes

LIMIT_MS = 10_000


class Listener:
    def __init__(self, limit: int = 100) -> None:
        self.time = ManualTime(1_000_000)
        self.handshakes = Handshakes(self.time, LIMIT_MS, limit)
        self.aborted: list[tuple[str, str]] = []

    def begin(self, name: str) -> Handshake:
        """`name`: the address and a number, as in `a1`."""
        return self.handshakes.begin(name[0], lambda reason: self.aborted.append((name, reason)))

    def wait(self, milliseconds: int) -> None:
        until_ms = self.time.now_ms() + milliseconds
        while self.time.step(until_ms):
            pass


def test_a_handshake_that_takes_too_long_is_aborted() -> None:
    listener = Listener()
    listener.begin("a1")
    listener.wait(LIMIT_MS - 1)
    assert listener.aborted == []
    listener.wait(1)
    assert listener.aborted == [("a1", "the TLS handshake took too long")]
    assert len(listener.handshakes) == 0


def test_one_that_ended_is_left_alone_however_often_it_ends() -> None:
    listener = Listener()
    begun = listener.begin("a1")
    begun.end()
    begun.end()
    listener.wait(2 * LIMIT_MS)
    assert (listener.aborted, len(listener.handshakes)) == ([], 0)


def test_beyond_the_limit_the_oldest_of_the_address_with_most_yields() -> None:
    listener = Listener(limit=4)
    for name in ("b1", "a1", "a2", "a3", "c1"):
        listener.begin(name)
    assert [name for name, _ in listener.aborted] == ["a1"]
    listener.begin("a4")
    assert [name for name, _ in listener.aborted] == ["a1", "a2"]
    assert len(listener.handshakes) == 4
