"""Gauges, which are computed when metrics are scraped. The values of a whole broker are tested with the HTTP port."""

from __future__ import annotations

from doubles import PassRunner

from trimq.metrics import Metrics
from trimq.server.gauges import expose_disk, expose_passes
from trimq.storage.io.files import Space
from trimq.storage.io.memory_files import MemoryFiles


def samples(metrics: Metrics) -> dict[str, float]:
    lines = [line for line in metrics.render().decode().splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


def test_pass_numbers_are_current() -> None:
    metrics, passes = Metrics(), PassRunner(MemoryFiles()).passes
    expose_passes(metrics, passes)
    assert samples(metrics) == {"trimq_passes_written": 0, "trimq_passes_durable": 0}
    passes.written, passes.durable = 7, 5
    assert samples(metrics) == {"trimq_passes_written": 7, "trimq_passes_durable": 5}


class Disk(MemoryFiles):
    is_gone = False

    def space(self) -> Space:
        if self.is_gone:
            raise OSError(5, "planted")
        return Space(123, 456)


def test_room_that_is_unknown_is_left_out() -> None:
    metrics, disk = Metrics(), Disk()
    expose_disk(metrics, disk)
    assert samples(metrics) == {"trimq_disk_free_bytes": 123}
    disk.is_gone = True
    assert samples(metrics) == {}
