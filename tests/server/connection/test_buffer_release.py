"""Release of receive buffers: idle connections free them after a large transfer, busy ones do not."""

from __future__ import annotations

from trimq.clock import ManualTime
from trimq.server.connection.buffer_release import LOOK_MS, BufferReleaser


class Connection:
    def __init__(self) -> None:
        self.activity_count = 0
        self.is_restless = False
        self.rested_ms: list[int] = []
        self.time = ManualTime(0)

    def release_memory(self) -> bool:
        self.rested_ms.append(self.time.now_ms())
        return not self.is_restless


def pass_time(time: ManualTime, until_ms: int) -> None:
    while time.step(until_ms):
        pass


def test_a_connection_rests_when_it_did_nothing_from_one_look_to_the_next() -> None:
    connection = Connection()
    buffer_releaser = BufferReleaser(connection.time)
    buffer_releaser.watch(connection)
    buffer_releaser.watch(connection)
    pass_time(connection.time, 2 * LOOK_MS - 1)
    connection.activity_count += 1
    pass_time(connection.time, 3 * LOOK_MS - 1)
    assert connection.rested_ms == []
    pass_time(connection.time, 10 * LOOK_MS)
    assert connection.rested_ms == [3 * LOOK_MS]
    assert len(buffer_releaser) == 0


def test_one_that_still_needs_its_memory_is_asked_again() -> None:
    connection = Connection()
    buffer_releaser = BufferReleaser(connection.time)
    connection.is_restless = True
    buffer_releaser.watch(connection)
    pass_time(connection.time, 4 * LOOK_MS)
    assert connection.rested_ms == [2 * LOOK_MS, 3 * LOOK_MS, 4 * LOOK_MS]
    connection.is_restless = False
    pass_time(connection.time, 9 * LOOK_MS)
    assert connection.rested_ms[3:] == [5 * LOOK_MS]


def test_one_that_has_ended_is_left_alone_and_no_timer_stays() -> None:
    connection, other = Connection(), Connection()
    buffer_releaser = BufferReleaser(connection.time)
    buffer_releaser.watch(connection)
    buffer_releaser.watch(other)
    buffer_releaser.forget(connection)
    pass_time(connection.time, 10 * LOOK_MS)
    assert (connection.rested_ms, len(other.rested_ms)) == ([], 1)
    buffer_releaser.watch(connection)
    buffer_releaser.forget(connection)
    assert not connection.time.step(100 * LOOK_MS)
    buffer_releaser.watch(connection)
    pass_time(connection.time, 200 * LOOK_MS)
    assert len(connection.rested_ms) == 1
