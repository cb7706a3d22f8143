from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import msgspec
import pytest
from doubles import FaultyFiles, ManualOffload, PassRunner, PowerCut
from hypothesis import given
from hypothesis import strategies as st

from trimq.clock import ManualTime
from trimq.errors import Damage, StartupError, WriteFailed
from trimq.storage.group_commit.flusher import AsyncFlusher
from trimq.storage.group_commit.passes import Passes
from trimq.storage.io.files import DiskFiles, Files
from trimq.storage.io.memory_files import MemoryFiles, NameChange
from trimq.storage.tables.records import DELETE, HEADER, PUT, SYNCED, encode_record, encode_records, iterate_frames
from trimq.storage.tables.table import Table, open_table

FOLDER = "meta/tables"
LOG = f"{FOLDER}/numbers.0.log"
SNAPSHOT = f"{FOLDER}/numbers.snapshot"


class Cursor(msgspec.Struct, frozen=True):
    offset: int
    note: str = ""


def open_numbers(files: Files, runner: PassRunner, snapshot_above_bytes: int = 1 << 20) -> Table[int]:
    return open_table(files, FOLDER, "numbers", runner.passes, int, runner.offload, snapshot_above_bytes)


def reopened(files: Files) -> dict[str, int]:
    return dict(open_numbers(files, PassRunner(files)).items())


def filled(files: Files, **numbers: int) -> None:
    runner = PassRunner(files)
    table = open_numbers(files, runner)
    for key, value in numbers.items():
        table.put(key, value)
    runner.settle()


def with_snapshot(files: Files, **numbers: int) -> None:
    runner = PassRunner(files)
    table = open_numbers(files, runner, snapshot_above_bytes=0)
    for _ in range(5):  # the log must be more than twice as large as the live records
        for key, value in numbers.items():
            table.put(key, value)
    runner.settle()
    assert "numbers.snapshot" in files.names(FOLDER)


def contents(files: Files, name: str) -> bytes:
    file = files.open(name)
    return file.read(0, file.size())


def copied(files: MemoryFiles) -> MemoryFiles:
    """The same contents, all of them durable."""
    copy = MemoryFiles()
    copy.make_folder(FOLDER)
    for name in files.names(FOLDER):
        replace(copy, f"{FOLDER}/{name}", contents(files, f"{FOLDER}/{name}"))
    copy.sync_all()
    return copy


def replace(files: Files, name: str, data: bytes) -> None:
    file = files.open(name, create=True)
    file.resize(0)
    file.write(0, [data])


# -- the map


def test_a_change_is_seen_at_once() -> None:
    files = MemoryFiles()
    table = open_numbers(files, PassRunner(files))
    table.put("one", 1)
    table.put("two", 2)
    table.put("one", 11)
    table.delete("two")
    assert table.get("one") == 11
    assert table.get("two") is None
    assert "one" in table
    assert "two" not in table
    assert (len(table), list(table), list(table.values()), list(table.items())) == (1, ["one"], [11], [("one", 11)])


def test_the_changes_of_a_pass_share_its_ticket() -> None:
    files = MemoryFiles()
    runner = PassRunner(files)
    table = open_numbers(files, runner)
    first, second = table.put("one", 1), table.delete("one")
    assert first is second
    assert first.number == 1
    runner.end_pass()
    assert table.put("two", 2).number == 2


def test_deleting_a_missing_key_has_a_ticket_too() -> None:
    files = MemoryFiles()
    runner = PassRunner(files)
    table = open_numbers(files, runner)
    ticket = table.delete("nobody")
    runner.settle()
    assert (ticket.number, ticket.refusal, runner.passes.durable) == (1, None, 1)


def test_a_value_that_cannot_be_encoded_changes_nothing() -> None:
    files = MemoryFiles()
    runner = PassRunner(files)
    table: Table[object] = open_table(files, FOLDER, "numbers", runner.passes, object, runner.offload)
    with pytest.raises(TypeError):
        table.put("key", object())
    with pytest.raises(TypeError):
        table.put_all(["key", "other"], object())
    assert "key" not in table
    assert runner.passes.is_idle


def test_a_batch_of_changes_is_written_as_single_changes_are() -> None:
    together, alone = MemoryFiles(), MemoryFiles()
    many, one = open_numbers(together, PassRunner(together)), open_numbers(alone, PassRunner(alone))
    keys = ["a", "b", "ü", "x" * 300, ""]
    ticket = many.put_all(keys, 7)
    assert many.delete_all(["b", "nobody", "b"]) is ticket
    assert many.put_all(["a", "c"], 8) is many.put_all([], 9) is ticket
    for key in keys:
        one.put(key, 7)
    one.delete("b")
    one.put("a", 8)
    one.put("c", 8)
    assert dict(many.items()) == dict(one.items())
    assert many._live_bytes == one._live_bytes
    for table in (many, one):
        table._passes.finish()
    assert contents(together, LOG) == contents(alone, LOG)
    assert reopened(together) == {"a": 8, "ü": 7, "x" * 300: 7, "": 7, "c": 8}


@given(st.sampled_from([PUT, DELETE]), st.lists(st.text()), st.one_of(st.none(), st.integers(0, 2**60), st.text()))
def test_records_encoded_in_a_batch_equal_those_encoded_alone(kind: int, keys: list[str], value: object) -> None:
    assert encode_records(kind, keys, value) == [encode_record(kind, key, value) for key in keys]


def test_a_fresh_table_touches_no_file_until_it_is_written() -> None:
    files = MemoryFiles()
    assert len(open_numbers(files, PassRunner(files))) == 0
    assert files.names(FOLDER) == []


def test_a_pass_is_one_write() -> None:
    files = FaultyFiles(MemoryFiles())
    runner = PassRunner(files)
    table = open_numbers(files, runner)
    operations: list[str] = []
    files.before = lambda operation, name: operations.append(operation)
    for number in range(2000):
        table.put(str(number), number)
    runner.end_pass()
    assert operations == ["create", "write"]


def test_structures_survive_a_restart() -> None:
    files = MemoryFiles()
    runner = PassRunner(files)
    table = open_table(files, FOLDER, "cursors", runner.passes, Cursor, runner.offload)
    table.put("grüppe/τόπος/0", Cursor(7, "seen"))
    runner.settle()
    files.crash()
    again = open_table(files, FOLDER, "cursors", PassRunner(files).passes, Cursor, runner.offload)
    assert dict(again.items()) == {"grüppe/τόπος/0": Cursor(7, "seen")}


# -- durability


def test_durable_changes_survive_a_power_cut() -> None:
    files = MemoryFiles()
    filled(files, one=1, two=2)
    files.crash()
    assert reopened(files) == {"one": 1, "two": 2}


def test_changes_that_are_not_durable_are_lost_in_a_power_cut() -> None:
    files = MemoryFiles()
    runner = PassRunner(files)
    table = open_numbers(files, runner)
    table.put("one", 1)
    runner.settle()
    table.put("one", 2)
    runner.end_pass()
    files.crash()
    assert reopened(files) == {"one": 1}


def test_changes_read_after_a_kill_survive_a_later_power_cut() -> None:
    files = MemoryFiles()
    runner = PassRunner(files)
    open_numbers(files, runner).put("one", 1)
    runner.end_pass()  # killed here: the bytes are in the page cache only
    assert reopened(files) == {"one": 1}
    files.crash()
    assert reopened(files) == {"one": 1}


def test_tables_of_one_folder_do_not_disturb_each_other() -> None:
    files = MemoryFiles()
    runner = PassRunner(files)
    names = ["a", "a.1", "a.snapshot"]
    for number, name in enumerate(names):
        table = open_table(files, FOLDER, name, runner.passes, int, runner.offload, snapshot_above_bytes=0)
        for _ in range(4):
            table.put("number", number)
    runner.settle()
    files.crash()
    found = [open_table(files, FOLDER, name, runner.passes, int, runner.offload).get("number") for name in names]
    assert found == [0, 1, 2]


def test_it_works_on_a_real_disk(tmp_path: Path) -> None:
    files = DiskFiles(str(tmp_path))
    with_snapshot(files, one=1, two=2)
    runner = PassRunner(files)
    table = open_numbers(files, runner)
    table.put("three", 3)
    table.delete("one")
    runner.settle()
    table.close()
    assert reopened(files) == {"two": 2, "three": 3}
    files.close()


# -- a failed write


def full_disk(files: FaultyFiles) -> None:
    files.room_bytes = 10


def no_new_names(files: FaultyFiles) -> None:
    def before(operation: str, name: str) -> None:
        if operation == "create":
            raise OSError(errno.EMFILE, "too many open files")

    files.before = before


def without_faults(files: FaultyFiles) -> None:
    files.room_bytes = None
    files.before = lambda operation, name: None


@pytest.mark.parametrize("fault", [full_disk, no_new_names])
def test_a_failed_first_write_is_undone(fault: Callable[[FaultyFiles], None]) -> None:
    files = FaultyFiles(MemoryFiles())
    runner = PassRunner(files)
    table = open_numbers(files, runner)
    fault(files)
    ticket = table.put("one", 1)
    runner.settle()
    assert isinstance(ticket.refusal, WriteFailed)
    assert len(table) == 0
    without_faults(files)
    table.put("two", 2)
    runner.settle()
    assert runner.failures == []
    assert reopened(files) == {"two": 2}


@pytest.mark.parametrize("room_bytes", range(40))
def test_a_failed_write_is_undone_exactly(room_bytes: int) -> None:
    memory = MemoryFiles()
    files = FaultyFiles(memory)
    runner = PassRunner(files)
    table = open_numbers(files, runner)
    for key, value in {"stays": 1, "changes": 2, "goes": 3}.items():
        table.put(key, value)
    runner.settle()
    before = contents(files, LOG)
    undone: list[set[str]] = []
    table.on_undone(lambda keys: undone.append(set(keys)))
    files.room_bytes = room_bytes
    ticket = table.put("changes", 20)
    table.put_all(["changes", "comes too"], 21)
    table.delete("goes")
    table.put("comes", 4)
    table.delete_all(["comes", "comes too"])
    runner.settle()
    assert isinstance(ticket.refusal, WriteFailed)
    assert undone == [{"changes", "goes", "comes", "comes too"}]
    assert dict(table.items()) == {"stays": 1, "changes": 2, "goes": 3}
    assert contents(files, LOG) == before
    files.room_bytes = None
    table.put("changes", 22)
    runner.settle()
    memory.crash()
    assert reopened(memory) == {"stays": 1, "changes": 22, "goes": 3}


def test_a_write_that_cannot_be_undone_stops_the_broker() -> None:
    files = FaultyFiles(MemoryFiles())
    runner = PassRunner(files)
    table = open_numbers(files, runner)
    table.put("one", 1)
    runner.settle()

    def before(operation: str, name: str) -> None:
        if operation in ("write", "resize"):
            raise OSError(errno.EIO, "input/output error")

    files.before = before
    table.put("one", 2)
    runner.end_pass()
    assert len(runner.failures) == 1


# -- snapshots


def test_a_snapshot_replaces_the_logs() -> None:
    files = MemoryFiles()
    with_snapshot(files, one=1, two=2)
    assert files.names(FOLDER) == ["numbers.snapshot"]
    files.crash()
    assert reopened(files) == {"one": 1, "two": 2}


def test_a_snapshot_waits_until_the_log_is_twice_as_large_as_its_live_records() -> None:
    files = MemoryFiles()
    runner = PassRunner(files)
    table = open_numbers(files, runner, snapshot_above_bytes=100)
    for number in range(50):
        table.put(f"{number:03}", number)
        runner.settle()
    assert files.names(FOLDER) == ["numbers.0.log"]
    for number in range(55):
        table.put(f"{number % 50:03}", number)
        runner.settle()
    assert "numbers.snapshot" in files.names(FOLDER)


def test_a_small_log_gets_no_snapshot() -> None:
    files = MemoryFiles()
    runner = PassRunner(files)
    table = open_table(files, FOLDER, "numbers", runner.passes, int, runner.offload)
    for number in range(1000):
        table.put("one", number)
        runner.settle()
    assert files.names(FOLDER) == ["numbers.0.log"]
    assert len(contents(files, LOG)) < 64 * 1024


def test_changes_continue_while_a_snapshot_is_written() -> None:
    files = MemoryFiles()
    runner = PassRunner(files)
    table = open_table(files, FOLDER, "texts", runner.passes, str, runner.offload)
    expected = {f"{number}": "x" * 100_000 for number in range(20)}
    for _ in range(3):
        for key, value in expected.items():
            table.put(key, value)
    runner.end_pass()
    rounds = 0
    while not table.is_idle:
        rounds += 1
        table.put("meanwhile", str(rounds))
        table.put("0", str(rounds))
        runner.end_pass()
        assert runner.offload.run_one(), "the snapshot must have pending work"
    runner.settle()
    assert rounds > 4
    assert runner.passes.durable == rounds + 1
    files.crash()
    again = open_table(files, FOLDER, "texts", PassRunner(files).passes, str, runner.offload)
    assert dict(again.items()) == expected | {"meanwhile": str(rounds), "0": str(rounds)}


def test_unwritten_changes_are_not_in_a_snapshot() -> None:
    memory = MemoryFiles()
    files = FaultyFiles(memory)
    runner = PassRunner(files)
    table = open_numbers(files, runner, snapshot_above_bytes=0)
    for _ in range(5):
        table.put("one", 1)
    runner.end_pass()
    table.put("one", 666)  # visible, but its pass will fail
    while runner.offload.run_one():
        pass
    assert "numbers.snapshot" in files.names(FOLDER)
    files.room_bytes = 0
    runner.end_pass()
    files.room_bytes = None
    assert table.get("one") == 1
    memory.crash()
    assert reopened(memory) == {"one": 1}


FAILING = [("write", ".tmp"), ("create", ".tmp"), ("resize", ".tmp"), ("sync", ".tmp"), ("rename", ""), ("remove", "")]


@pytest.mark.parametrize(("failing", "ending"), FAILING)
def test_a_failed_snapshot_loses_nothing_and_is_retried(failing: str, ending: str) -> None:
    memory = MemoryFiles()
    files = FaultyFiles(memory)
    runner = PassRunner(files)
    table = open_numbers(files, runner, snapshot_above_bytes=0)
    faults = 0

    def before(operation: str, name: str) -> None:
        nonlocal faults
        if operation == failing and name.endswith(ending):
            faults += 1
            raise OSError(errno.EIO, "input/output error")

    files.before = before
    for number in range(30):
        ticket = table.put("one", number)
        runner.settle()
        assert ticket.refusal is None
    assert faults > 1, "the snapshot was not retried"
    assert runner.failures == []
    assert reopened(copied(memory)) == {"one": 29}
    without_faults(files)
    for number in range(30):
        table.put("one", number)
        runner.settle()
    assert table.is_idle
    memory.crash()
    assert reopened(memory) == {"one": 29}
    assert len(memory.names(FOLDER)) <= 2, "files of failed snapshots were not removed"


def test_logs_are_kept_and_the_broker_stops_when_the_folder_sync_of_a_snapshot_fails() -> None:
    memory = MemoryFiles()
    runner = PassRunner(memory)
    table = open_numbers(memory, runner, snapshot_above_bytes=0)
    for _ in range(5):
        table.put("one", 1)
    runner.end_pass()
    runner.offload.run_one()  # the pass
    runner.offload.run_one()  # a part of the snapshot
    runner.offload.fail_one(OSError(errno.EIO, "input/output error"))
    assert table.is_idle
    assert [type(error) for error in runner.failures] == [OSError]
    assert memory.names(FOLDER) == ["numbers.0.log", "numbers.snapshot"]
    memory.crash()
    assert reopened(memory) == {"one": 1}


def test_a_closed_table_ignores_the_end_of_its_snapshot() -> None:
    files = MemoryFiles()
    runner = PassRunner(files)
    table = open_numbers(files, runner, snapshot_above_bytes=0)
    for _ in range(5):
        table.put("one", 1)
    runner.end_pass()
    runner.offload.run_one()
    table.close()
    before = files.names(FOLDER)
    runner.offload.run_all()
    assert files.names(FOLDER) == before
    assert reopened(files) == {"one": 1}
    assert files.names(FOLDER) == ["numbers.0.log"]


@pytest.mark.parametrize("passes_done", range(21, 60))
def test_with_an_asynchronous_flusher_only_unsynced_changes_are_lost(passes_done: int) -> None:
    """Passes are confirmed before they are on disk, so a snapshot must sync its files itself."""
    files, time, offload = MemoryFiles(), ManualTime(0), ManualOffload()
    soon: list[Callable[[], None]] = []
    passes = Passes(soon.append, _raise)
    passes.start(AsyncFlusher(files, offload, 64, passes.mark_durable, _raise, time, interval_ms=1000))
    table = open_table(files, FOLDER, "numbers", passes, int, offload, snapshot_above_bytes=200)
    for number in range(passes_done):
        table.put("one", number)
        soon.pop()()
        if number == 10:
            time.step(1000)
            offload.run_all()
        elif number > 10:
            offload.run_one()  # only of the snapshot: the interval is not over
    if passes_done > 30:
        assert "numbers.snapshot" in files.names(FOLDER)
    files.crash()
    assert reopened(files).get("one") in range(10, passes_done)


def _raise(error: BaseException) -> None:
    raise error


# -- damaged bytes


def test_a_torn_tail_is_cut_at_every_length() -> None:
    original = MemoryFiles()
    filled(original, one=1)
    whole = len(contents(original, LOG))
    filled(original, two=2)
    data = contents(original, LOG)
    ends = [0, *(frame.end for frame in iterate_frames(data))]
    second = next(frame for frame in iterate_frames(data) if frame.position == whole)
    for size in range(len(data)):
        files = copied(original)
        files.open(LOG).resize(size)
        found = reopened(files)
        assert found == ({"one": 1} if size >= whole else {}) | ({"two": 2} if size >= second.end else {})
        assert len(contents(files, LOG)) == max(end for end in ends if end <= size)
        filled(files, three=3)
        files.crash()
        assert reopened(files) == found | {"three": 3}


def test_a_flipped_byte_in_a_log_is_never_served() -> None:
    original = MemoryFiles()
    for key, value in {"one": 1, "two": 2, "three": 3}.items():
        filled(original, **{key: value})
    data = contents(original, LOG)
    *_, third, mark = [frame.position for frame in iterate_frames(data)]
    for position in range(len(data)):
        for bit in (0x01, 0x80):
            files = copied(original)
            replace(files, LOG, data[:position] + bytes([data[position] ^ bit]) + data[position + 1 :])
            if position >= third:
                assert reopened(files) == {"one": 1, "two": 2} | ({"three": 3} if position >= mark else {})
                continue
            damaged = contents(files, LOG)
            with pytest.raises(Damage, match=rf"{LOG} is damaged at byte \d+: .*restore it from a backup"):
                reopened(files)
            assert contents(files, LOG) == damaged, "a damaged file must not be changed"


def marked(files: Files, **numbers: int) -> None:
    """Writes a table as after a clean stop."""
    runner = PassRunner(files)
    table = open_numbers(files, runner)
    for key, value in numbers.items():
        table.put(key, value)
    runner.settle()
    assert table.mark_synced()
    runner.settle()
    assert not table.mark_synced(), "the sync marker is already written"


def test_a_flipped_byte_before_a_sync_marker_is_damage() -> None:
    original = MemoryFiles()
    marked(original, one=1, two=2)
    data = contents(original, LOG)
    *_, mark = [frame.position for frame in iterate_frames(data)]
    for position in range(len(data)):
        files = copied(original)
        replace(files, LOG, data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :])
        if position >= mark:
            assert reopened(files) == {"one": 1, "two": 2}
            continue
        with pytest.raises(Damage, match=rf"{LOG} is damaged at byte \d+: .*restore it from a backup"):
            reopened(files)


def test_a_sync_marker_is_written_once_and_a_restart_needs_no_other() -> None:
    files = MemoryFiles()
    marked(files, one=1)
    before = contents(files, LOG)
    runner = PassRunner(files)
    table = open_numbers(files, runner)
    assert not table.mark_synced()
    runner.settle()
    assert contents(files, LOG) == before
    table.put("two", 2)
    assert not table.mark_synced(), "a sync marker was written before the sync"
    runner.settle()
    assert table.mark_synced()


def test_a_table_that_was_never_written_needs_no_sync_marker() -> None:
    files = MemoryFiles()
    assert not open_numbers(files, PassRunner(files)).mark_synced()


def test_a_torn_tail_before_a_log_with_a_sync_marker_is_damage() -> None:
    files = MemoryFiles()
    filled(files, one=1)
    whole = contents(files, LOG)
    header = encode_record(HEADER, 1, len(whole))
    replace(files, LOG, whole[:-1])
    replace(files, f"{FOLDER}/numbers.1.log", header + encode_record(SYNCED, len(header), None))
    with pytest.raises(Damage, match=rf"{LOG} is damaged at byte \d+: the records before those of .*numbers.1.log"):
        reopened(files)


def test_a_cut_tail_is_logged_with_its_size_and_reported(caplog: pytest.LogCaptureFixture) -> None:
    files = MemoryFiles()
    filled(files, one=1)
    assert not open_numbers(files, PassRunner(files)).was_truncated
    whole = contents(files, LOG)
    replace(files, LOG, whole + b"torn")
    assert open_numbers(files, PassRunner(files)).was_truncated
    assert f"{LOG}: cutting 4 bytes from byte {len(whole)} on" in caplog.text


def test_a_hole_in_unsynced_records_is_cut() -> None:
    files = MemoryFiles()
    filled(files, one=1)
    data = contents(files, LOG)
    filled(files, two=2, three=3)
    whole = contents(files, LOG)
    second = next(frame for frame in iterate_frames(whole) if frame.position == len(data))
    replace(files, LOG, data + bytes(second.end - len(data)) + whole[second.end :])
    assert reopened(files) == {"one": 1}
    assert contents(files, LOG) == data


def test_a_flipped_byte_in_a_snapshot_is_damage() -> None:
    original = MemoryFiles()
    with_snapshot(original, one=1, two=2)
    data = contents(original, SNAPSHOT)
    for position in range(len(data)):
        files = copied(original)
        replace(files, SNAPSHOT, data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :])
        with pytest.raises(Damage, match=rf"{SNAPSHOT} is damaged at byte \d+: "):
            reopened(files)


def test_an_incomplete_snapshot_is_damage() -> None:
    original = MemoryFiles()
    with_snapshot(original, one=1, two=2)
    data = contents(original, SNAPSHOT)
    frames = [data[frame.position : frame.end] for frame in iterate_frames(data)]
    for other in (
        *(data[:size] for size in range(len(data))),
        data + b"\0",
        data + frames[1],
        b"".join([frames[0], frames[1], frames[-1]]),
        b"".join([frames[0], frames[0], *frames[1:]]),
        b"".join([frames[0], frames[1], frames[1], frames[-1]]),
    ):
        files = copied(original)
        replace(files, SNAPSHOT, other)
        with pytest.raises(Damage, match=r"numbers\.snapshot is damaged"):
            reopened(files)


def of_version(record: bytes, version: int) -> bytes:
    from trimq.formats.checksum import crc32c

    body = bytes([version]) + record[9:]
    return record[:4] + crc32c(body).to_bytes(4, "big") + body


@pytest.mark.parametrize("name", [LOG, SNAPSHOT])
def test_a_newer_format_is_a_startup_error_with_a_clear_message(name: str) -> None:
    files = MemoryFiles()
    files.make_folder(FOLDER)
    replace(files, name, of_version(encode_record(HEADER, 0, 0), 2))
    with pytest.raises(StartupError, match=r"was written by a newer version \(format 2, this one reads up to 1\)"):
        reopened(files)


def test_a_missing_log_is_damage() -> None:
    files = MemoryFiles()
    filled(files, one=1)
    filled(files, two=2)
    files.rename(LOG, f"{FOLDER}/numbers.1.log")
    with pytest.raises(Damage, match=rf"numbers.1.log continues a missing file, {LOG} or {SNAPSHOT}"):
        reopened(files)


def test_an_empty_log_whose_predecessor_was_lost_is_no_damage() -> None:
    files = MemoryFiles()
    runner = PassRunner(files)
    table = open_numbers(files, runner, snapshot_above_bytes=0)
    for _ in range(5):
        table.put("one", 1)
    runner.end_pass()
    table.put("two", 2)
    runner.end_pass()
    assert {"numbers.0.log", "numbers.1.log"} <= set(files.names(FOLDER)), (
        "both logs must exist before the first is synced"
    )
    files.remove(LOG)
    assert reopened(files) == {}


def test_a_log_with_the_name_of_another_is_damage() -> None:
    files = MemoryFiles()
    with_snapshot(files, one=1)
    filled(files, two=2)
    other = MemoryFiles()
    filled(other, three=3)
    replace(files, f"{FOLDER}/numbers.1.log", contents(other, LOG))
    with pytest.raises(Damage, match="header and file name do not match"):
        reopened(files)


def test_records_appended_after_the_next_log_began_are_damage() -> None:
    files = MemoryFiles()
    filled(files, one=1)
    replace(files, f"{FOLDER}/numbers.1.log", encode_record(HEADER, 1, 1))
    with pytest.raises(Damage, match="the previous log has records appended after this one was begun"):
        reopened(files)


def test_a_value_of_another_type_is_damage() -> None:
    files = MemoryFiles()
    filled(files, one=1)
    runner = PassRunner(files)
    with pytest.raises(Damage, match="a value is not of the expected type"):
        open_table(files, FOLDER, "numbers", runner.passes, str, runner.offload)


def test_a_record_of_an_unknown_kind_is_damage() -> None:
    files = MemoryFiles()
    filled(files, one=1)
    replace(files, LOG, contents(files, LOG) + encode_record(9, "one", 1))
    with pytest.raises(Damage, match="unexpected kind of record"):
        reopened(files)


# -- power cuts at every operation, with every length of torn tail

# Passes of one to three changes; between them the work off the loop is done in part, so that passes share sync rounds
# and logs begin while older ones are not synced.
SCRIPT: list[tuple[dict[str, int | None], int]] = [
    ({"a": 1, "b": 2}, 1),
    ({"a": 3}, 0),
    ({"b": None, "c": 4}, 2),
    ({"a": 5}, 0),
    ({"d": 7}, 3),
    ({"a": 8, "d": None}, 0),
    ({"c": 10}, 3),
    ({"c": 11}, 3),
    ({"e": 12, "c": 13}, 0),
    ({"c": None}, 2),
    ({"e": None}, 4),
    ({"a": 15}, 1),
    ({"a": 16, "b": 17}, 1),
    ({"a": 18}, 9),
]
SMALL = 50
LATER = ("longer than any tail that is torn" * 10, 1)


class Run:
    """A run of the script up to one operation. `states` has the state after each change, with the number of its
    pass."""

    def __init__(self, stop_at: int) -> None:
        self.files = MemoryFiles()
        self.states: list[tuple[int, dict[str, int]]] = [(0, {})]
        self.was_truncated = False
        self.operations = 0
        self.snapshots = 0
        self.runner = PassRunner(self._cut_at(stop_at))
        try:
            self._play(self._faulty)
        except PowerCut:
            self.was_truncated = True

    def _cut_at(self, stop_at: int) -> FaultyFiles:
        def before(operation: str, name: str) -> None:
            if self.operations == stop_at:
                raise PowerCut
            self.operations += 1
            self.snapshots += operation == "rename"

        self._faulty = FaultyFiles(self.files)
        self._faulty.before = before
        return self._faulty

    def _play(self, files: Files) -> None:
        table = open_numbers(files, self.runner, SMALL)
        for changes, rounds in SCRIPT:
            for key, value in changes.items():
                ticket = table.delete(key) if value is None else table.put(key, value)
                self.states.append((ticket.number, dict(table.items())))
            self.runner.end_pass()
            for _ in range(rounds):
                self.runner.offload.run_one()
        self.runner.settle()

    def possible(self) -> list[dict[str, int]]:
        """The last state that was acknowledged, and every later one."""
        durable = self.runner.passes.durable
        acknowledged = [state for number, state in self.states if number <= durable]
        return [acknowledged[-1], *(state for number, state in self.states if number > durable)]


NO_NAMES, EVERY_NAME = 0, -1


class Torn:
    """Survivors of a power cut: of each file the synced bytes and `tails` bytes more, and of the name changes in the
    table's folder those with a bit set in `names_kept`."""

    def __init__(self, tails: dict[str, int], names_kept: int) -> None:
        self._tails = tails
        self._names_kept = names_kept
        self.unsynced_bytes: dict[str, int] = {}
        self.unsynced_names = 0

    def names(self, folder: str, changes: Sequence[NameChange]) -> Iterable[NameChange]:
        if folder != FOLDER:
            return changes if self._names_kept else ()
        self.unsynced_names = len(changes)
        return [change for place, change in enumerate(changes) if self._names_kept >> place & 1]

    def contents(self, name: str, versions: Sequence[bytes]) -> bytes:
        oldest, newest = versions[0], versions[-1]
        self.unsynced_bytes[name] = len(newest) - len(oldest)
        return newest[: len(oldest) + self._tails.get(name, 0)]


def ways_to_tear(run: Run) -> Iterator[Torn]:
    """Every length of torn tail, in one file while the others keep nothing or everything; with no unsynced names and
    with all of them. And every choice of unsynced names, where the tails are bare or whole."""
    seen = Torn({}, EVERY_NAME)
    run.files.crash(seen)
    whole = {name: unsynced for name, unsynced in seen.unsynced_bytes.items() if unsynced}
    tails: list[dict[str, int]] = [{}]
    for name, unsynced in whole.items():
        for length in range(1, unsynced + 1):
            tails += [{name: length}, whole | {name: length}] if len(whole) > 1 else [{name: length}]
    for tail in tails:
        yield Torn(tail, EVERY_NAME)
        if seen.unsynced_names:
            yield Torn(tail, NO_NAMES)
    for names_kept in range(1, 2**seen.unsynced_names - 1):
        yield Torn({}, names_kept)
        yield Torn(whole, names_kept)


def recovered_through_cuts(files: MemoryFiles) -> Iterator[dict[str, int]]:
    """Yields the recovered table when the power fails again at each operation of the recovery itself."""
    stop_at, is_whole = 0, False
    while not is_whole:
        again = copied(files)
        faulty = FaultyFiles(again)
        left = stop_at

        def before(operation: str, name: str) -> None:
            nonlocal left
            if left == 0:
                raise PowerCut
            left -= 1

        faulty.before = before
        try:
            open_numbers(faulty, PassRunner(faulty))
            is_whole = True
        except PowerCut:
            stop_at += 1
        again.crash()
        yield reopened(again)


OPERATIONS = Run(stop_at=-1).operations


def test_the_script_makes_snapshots_and_ends() -> None:
    run = Run(stop_at=OPERATIONS)
    assert not run.was_truncated
    assert Run(stop_at=OPERATIONS - 1).was_truncated
    assert OPERATIONS > 50
    assert run.snapshots >= 3
    assert reopened(run.files) == run.states[-1][1]


@pytest.mark.parametrize("stop_at", range(OPERATIONS))
def test_a_power_cut_at_any_operation_keeps_acknowledged_changes(stop_at: int) -> None:
    for number, way in enumerate(ways_to_tear(Run(stop_at))):
        run = Run(stop_at)
        run.files.crash(way)
        crashed = copied(run.files)
        found = check_recovery(run)
        if number % 20 == 0:
            assert all(again == found for again in recovered_through_cuts(crashed))


@pytest.mark.parametrize("stop_at", range(OPERATIONS))
def test_a_kill_at_any_operation_keeps_acknowledged_changes(stop_at: int) -> None:
    check_recovery(Run(stop_at))


def check_recovery(run: Run) -> dict[str, int]:
    """Checks that the recovered table is possible, and survives further changes and another power cut."""
    runner = PassRunner(run.files)
    table = open_numbers(run.files, runner)
    found = dict(table.items())
    assert found in run.possible()
    table.put(*LATER)
    runner.settle()
    run.files.crash()
    assert reopened(run.files) == found | dict([LATER])
    return found
