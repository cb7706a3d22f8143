"""Cold data is loaded and read again, a limited number of times."""

from __future__ import annotations

from trimq.core.cold_reads import MAX_LOADS, ColdReadRetry, warm_with
from trimq.errors import ColdRead, DamagedSegment
from trimq.offload import Done, Work


class LaterOffload:
    """Runs work when the test calls `run`."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Work, Done]] = []
        self.error: OSError | None = None

    def __call__(self, work: Work, done: Done) -> None:
        self.waiting.append((work, done))

    def run(self) -> None:
        work, done = self.waiting.pop()
        work()
        done(None, self.error)


def test_after_the_last_load_the_reader_reads_the_disk_itself() -> None:
    offload, warmed, ended = LaterOffload(), [], []
    retry = ColdReadRetry(warm_with(offload))
    for number in range(MAX_LOADS):
        assert not retry.may_wait
        retry.load(ColdRead("file", 7, lambda number=number: warmed.append(number)), ended.append)  # type: ignore[misc]
        assert retry.is_loading
        offload.run()
        assert not retry.is_loading
    assert retry.may_wait
    assert warmed == [0, 1, 2]
    assert ended == [None, None, None]
    retry.reset()
    assert not retry.may_wait


def test_a_disk_error_is_reported_as_damage() -> None:
    offload, ended = LaterOffload(), []
    offload.error = OSError("broken disk")
    ColdReadRetry(warm_with(offload)).load(ColdRead("file", 7, lambda: None), ended.append)
    offload.run()
    (damage,) = ended
    assert isinstance(damage, DamagedSegment)
    assert (damage.file, damage.position) == ("file", 7)
