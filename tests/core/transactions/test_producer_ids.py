from __future__ import annotations

from doubles import FaultyFiles, PassRunner

from trimq.core.transactions.producer_ids import ProducerIds
from trimq.storage.io.memory_files import MemoryFiles
from trimq.storage.tables.table import Table, open_table


def open_ids(files: FaultyFiles, runner: PassRunner, floor: int = 0) -> ProducerIds:
    table: Table[str | int] = open_table(files, "meta", "facts", runner.passes, int | str, runner.offload)  # type: ignore[arg-type]
    return ProducerIds(table, floor)


def test_producer_ids_are_unique_across_restarts() -> None:
    files = FaultyFiles(MemoryFiles())
    seen: set[int] = set()
    for _ in range(3):
        runner = PassRunner(files)
        ids = open_ids(files, runner)
        for _ in range(1_500):
            id = ids.next().id
            assert id not in seen
            seen.add(id)
        runner.settle()


def test_an_id_waits_for_its_block_to_be_durable() -> None:
    files = FaultyFiles(MemoryFiles())
    runner = PassRunner(files)
    ids = open_ids(files, runner)
    first, second = ids.next(), ids.next()
    assert first.ticket is not None
    assert first.ticket is second.ticket
    assert runner.passes.durable < first.ticket.number
    runner.settle()
    assert runner.passes.durable >= first.ticket.number


def test_a_block_whose_write_fails_is_refused_and_retried() -> None:
    files = FaultyFiles(MemoryFiles())
    runner = PassRunner(files)
    ids = open_ids(files, runner)

    def fail(operation: str, name: str) -> None:
        if operation == "write":
            raise OSError(28, "full")

    files.before = fail
    refused = ids.next()
    runner.settle()
    assert refused.ticket is not None
    assert refused.ticket.refusal is not None
    files.before = lambda operation, name: None
    granted = ids.next()
    runner.settle()
    assert granted.ticket is not None
    assert granted.ticket.refusal is None


def test_ids_below_the_floor_are_in_use() -> None:
    files = FaultyFiles(MemoryFiles())
    assert open_ids(files, PassRunner(files), floor=4_242).next().id == 4_242
