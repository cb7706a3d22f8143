from __future__ import annotations

import errno

import pytest

from trimq.clock import ManualTime
from trimq.errors import DiskFull
from trimq.storage.guards.disk_space import REFRESH_MS, DiskSpaceGuard
from trimq.storage.io.files import Space
from trimq.storage.io.memory_files import MemoryFiles

TOTAL = 10_000
LOW_WATER = 1_000


class Disk(MemoryFiles):
    """A disk with free space that the test changes; counts the queries."""

    def __init__(self, free_bytes: int) -> None:
        super().__init__()
        self.free_bytes = free_bytes
        self.query_count = 0
        self.is_failing = False

    def space(self) -> Space:
        self.query_count += 1
        if self.is_failing:
            raise OSError(errno.EIO, "input/output error")
        return Space(self.free_bytes, TOTAL)


class Bench:
    def __init__(self, free_bytes: int, disk_pressure_percent: int = 95) -> None:
        self.disk = Disk(free_bytes)
        self.time = ManualTime(5)
        self.guard = DiskSpaceGuard(self.disk, self.time, LOW_WATER, disk_pressure_percent, 80)

    def is_accepting(self) -> bool:
        try:
            self.guard.check()
        except DiskFull:
            return False
        return True

    def wait(self) -> None:
        while self.time.step(self.time.now_ms() + REFRESH_MS):
            pass


@pytest.mark.parametrize(("free_bytes", "is_accepting"), [(999, False), (1_000, True), (0, False), (10_000, True)])
def test_writes_are_refused_below_the_low_water_mark(free_bytes: int, is_accepting: bool) -> None:
    assert Bench(free_bytes).is_accepting() is is_accepting


def test_a_refusal_states_the_free_space() -> None:
    with pytest.raises(DiskFull) as caught:
        Bench(999).guard.check()
    assert (caught.value.free_bytes, caught.value.retriable) == (999, True)
    assert str(caught.value) == "the disk has 999 bytes free; writes are accepted again at 1101 or more"


def test_the_reported_free_space_is_never_negative(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(5_000)
    bench.guard.check()
    bench.guard.spend(6_000)
    with pytest.raises(DiskFull, match="the disk has 0 bytes free"):
        bench.guard.check()
    assert "disk: refusing writes (0 bytes free)" in caplog.text


def test_spent_bytes_count_at_once() -> None:
    bench = Bench(1_100)
    assert bench.is_accepting()
    bench.guard.spend(100)
    assert bench.is_accepting()
    bench.guard.spend(1)
    assert not bench.is_accepting()
    assert bench.disk.query_count == 1


def test_the_disk_is_queried_once_a_second() -> None:
    bench = Bench(9_000)
    for _ in range(3):
        for _ in range(1_000):
            bench.guard.check()
            bench.guard.spend(1)
        bench.wait()
    assert bench.disk.query_count == 3


def test_an_idle_broker_is_not_woken() -> None:
    bench = Bench(9_000)
    bench.guard.check()
    bench.wait()
    assert bench.time.next_due_ms() is None


def test_after_an_idle_time_the_disk_is_queried_before_the_first_write() -> None:
    bench = Bench(9_000)
    assert bench.is_accepting()
    bench.wait()
    bench.disk.free_bytes = 10
    assert not bench.is_accepting()


def test_a_query_of_the_disk_replaces_the_spent_bytes() -> None:
    bench = Bench(5_000)
    bench.guard.check()
    bench.guard.spend(4_500)  # for example of a sparse file
    assert not bench.is_accepting()
    bench.wait()
    assert bench.is_accepting()


@pytest.mark.parametrize(("free_bytes", "is_accepting"), [(1_001, False), (1_100, False), (1_101, True)])
def test_writes_are_accepted_again_well_above_the_mark(free_bytes: int, is_accepting: bool) -> None:
    bench = Bench(999)
    assert not bench.is_accepting()
    bench.disk.free_bytes = free_bytes
    assert not bench.is_accepting(), "the disk was queried by a write"
    bench.wait()
    assert bench.is_accepting() is is_accepting


def test_after_a_recovery_the_low_water_mark_applies_again() -> None:
    bench = Bench(999)
    assert not bench.is_accepting()
    for free_bytes, is_accepting in [(1_101, True), (1_000, True), (999, False), (1_050, False), (2_000, True)]:
        bench.disk.free_bytes = free_bytes
        bench.wait()
        assert bench.is_accepting() is is_accepting, free_bytes


def test_without_a_low_water_mark_all_space_may_be_used() -> None:
    disk = Disk(10)
    guard = DiskSpaceGuard(disk, ManualTime(0), 0, 100, 80)
    guard.check()
    guard.spend(10)
    guard.check()
    guard.spend(1)
    with pytest.raises(DiskFull):
        guard.check()


def test_a_failed_query_keeps_the_last_known_free_space() -> None:
    bench = Bench(1_500)
    bench.guard.check()
    bench.guard.spend(400)
    bench.disk.is_failing = True
    bench.wait()
    assert bench.is_accepting()
    bench.guard.spend(200)
    assert not bench.is_accepting()


def test_a_guard_that_is_stopped_leaves_no_timer() -> None:
    bench = Bench(9_000)
    bench.guard.check()
    bench.guard.stop()
    assert bench.time.next_due_ms() is None
    bench.guard.stop()


@pytest.mark.parametrize(
    ("free_bytes", "percent", "excess_bytes"),
    [(500, 95, 0), (499, 95, 1), (0, 95, 500), (10_000, 95, 0), (0, 100, 0), (2_000, 75, 500)],
)
def test_pressure_is_the_number_of_bytes_above_the_mark(free_bytes: int, percent: int, excess_bytes: int) -> None:
    assert Bench(free_bytes, percent).guard.pressure() == excess_bytes


def test_another_low_water_mark_holds_from_the_next_write_on() -> None:
    bench = Bench(1_500)
    seen = []
    for low_water_bytes in (1_000, 1_501, 1_500, 0):
        bench.guard.change_low_water(low_water_bytes)
        seen.append(bench.is_accepting())
    assert seen == [True, False, True, True]


@pytest.mark.parametrize(("free_bytes", "shortage"), [(1_250, 0), (1_249, 0.004), (1_125, 0.5), (1_000, 1), (999, 1)])
def test_the_shortage_of_space_grows_until_the_low_water_mark(free_bytes: int, shortage: float) -> None:
    bench = Bench(free_bytes)
    bench.is_accepting()
    assert bench.guard.shortage == shortage


def test_space_is_short_while_writes_are_refused() -> None:
    bench = Bench(999)
    assert not bench.is_accepting()
    bench.disk.free_bytes = 1_100
    bench.wait()
    assert not bench.is_accepting()
    assert bench.guard.shortage == 1


def test_a_disk_that_was_not_queried_yet_is_not_short() -> None:
    assert Bench(10).guard.shortage == 0


def test_space_is_short_while_writes_are_refused_even_without_throttling_before() -> None:
    disk = Disk(999)
    guard = DiskSpaceGuard(disk, ManualTime(0), LOW_WATER, 95, 100)
    with pytest.raises(DiskFull):
        guard.check()
    disk.free_bytes = 1_050
    guard.stop()
    with pytest.raises(DiskFull):
        guard.check()
    assert guard.shortage == 1
