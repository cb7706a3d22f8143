"""What `trimq storage verify` finds in the folder of a queue after a power cut, and that a start agrees."""

from __future__ import annotations

import pytest
from doubles import TornTails
from storage.queue_logs import NewestBytes, QueueLogs, bodies, content, numbered, roll_undone_and_repeated

from trimq.errors import Damage
from trimq.formats.amqp_content.content import encode_content
from trimq.storage.inspection.partitions import Finding
from trimq.storage.inspection.queues import verify


def found(machine: QueueLogs) -> list[Finding]:
    return list(verify(machine.memory, lambda done, total: None))


@pytest.mark.parametrize("kept_names", [(0,), (0, 2)])
def test_a_segment_of_an_undone_pass_is_what_the_next_start_removes(kept_names: tuple[int, ...]) -> None:
    machine = QueueLogs(segment_bytes=400)
    roll_undone_and_repeated(machine)
    machine.memory.crash(NewestBytes(*kept_names))
    (finding,) = found(machine)
    assert finding.file == "queues/q/00000000000000000002.contents"
    assert finding.problem == "begins before the end of queues/q/00000000000000000000.contents, offset 3"
    assert finding.remedy.startswith("Start the broker: it removes the file")
    machine.kill()
    assert bodies(machine.logs["q"])[2] == b"short"
    assert found(machine) == []


def test_overlapping_segments_that_a_start_refuses_are_damage() -> None:
    machine = QueueLogs(segment_bytes=400)
    machine.append(machine.make(), *numbered(0, 8, size=100))
    second = machine.logs["q"].segments[1]
    stray = machine.files.open(f"queues/q/{second.base - 1:020}.contents", create=True)
    stray.write(0, [second.segment.read(0, second.segment.size)])
    assert [finding.remedy for finding in found(machine) if finding.file == stray.name] == [
        "Restore it from a copy, or remove the folder to continue without the messages of this queue."
    ]
    with pytest.raises(Damage, match=stray.name):
        machine.kill()


def test_a_torn_segment_before_others_is_what_the_next_start_cuts_if_none_of_them_was_durable() -> None:
    machine = QueueLogs(segment_bytes=400)
    log = machine.make()
    machine.append(log, b"kept")
    for body in numbered(0, 8, size=100):
        log.append(encode_content(content(body)))
    machine.runner.end_pass()
    machine.memory.crash(TornTails(50, keeps_names=True))
    assert {finding.remedy for finding in found(machine)} == {
        "Start the broker: it cuts bytes that were never acknowledged."
    }
    machine.kill()
    assert bodies(machine.logs["q"])[0] == b"kept"
    assert found(machine) == []
