"""The fast path for batches stores and answers what the slow path does."""

from __future__ import annotations

import pytest
from protocols.rocketmq.rocketmq_desk import Desk

from trimq.formats.rocketmq_unit.batch_body import BatchEntry, write_batch
from trimq.formats.rocketmq_unit.unit import Unit, iterate_units
from trimq.protocols.rocketmq.handlers import send
from trimq.wire.remoting import Command

ID = "UNIQ_KEY\x01{:032d}\x02"

BATCHES = {
    "plain": [(0, b"a", ID.format(1)), (7, b"bb", ID.format(2) + "WAIT\x01true\x02TAGS\x01t\x02")],
    "keys": [(0, b"a", ID.format(1) + "KEYS\x01k l\x02"), (0, b"", "KEYS\x01m\x02" + ID.format(2))],
    "not closed": [(0, b"a", ID.format(1)[:-1]), (0, b"a", "a\x01b\x02" + ID.format(2)[:-1])],
    "no id": [(0, b"a", "a\x01b\x02"), (0, b"b", ID.format(2))],
    "special": [(0, b"a", ID.format(1)), (0, b"b", ID.format(2) + "DELAY\x013\x02")],
    "ttl": [(0, b"a", ID.format(1) + "TRIMQ_TTL_MS\x015000\x02")],
    "many": [(0, b"x" * 100, ID.format(number)) for number in range(300)],
    "not UTF-8": [(0, b"a", b"UNIQ_KEY\x01\xff\x02a\x01\xc3\x28\x02")],
    "umlauts": [(0, "ä".encode(), ID.format(1) + "ü\x01ß\x02")],
}


def stored(batch: list[tuple[int, bytes, str | bytes]]) -> tuple[Command, list[Unit], list[bytes]]:
    """Returns the answer to the batch, the stored units, and what is found by keys."""
    desk = Desk()
    entries = [BatchEntry(flag, body, text if isinstance(text, bytes) else text.encode()) for flag, body, text in batch]
    answer = desk.broker.send("t", write_batch(entries), m=True, f=48 | 2, g=12345, j=3)
    units: list[Unit] = []
    while True:
        found = desk.broker.pull("t", len(units), maxMsgNums=64)
        if found.code:
            break
        units += iterate_units(found.body)
    times = {"beginTimestamp": 0, "endTimestamp": 2**62, "maxNum": 64, "topic": "t"}
    keys = [desk.broker.ask(12, {**times, "key": key}).body for key in (f"{1:032d}", f"{2:032d}", "k", "l", "m")]
    return answer, units, keys


@pytest.mark.parametrize("name", BATCHES)
def test_both_paths_give_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fast = stored(BATCHES[name])
    monkeypatch.setattr(send, "send_plain_batch", lambda *given: None)
    slow = stored(BATCHES[name])
    assert (fast[0].code, fast[0].fields, fast[0].body) == (slow[0].code, slow[0].fields, slow[0].body)
    assert fast[1:] == slow[1:]
    assert len(fast[1]) == len(BATCHES[name])


def test_plain_batches_take_the_fast_path(monkeypatch: pytest.MonkeyPatch) -> None:
    def unused(*given: object) -> None:
        raise AssertionError("the slow path was taken")

    monkeypatch.setattr(send, "store_batch", unused)
    for name in ("plain", "keys", "not closed", "many", "umlauts"):
        answer, units, _ = stored(BATCHES[name])
        assert (answer.code, len(units)) == (0, len(BATCHES[name]))


def test_a_batch_above_the_size_of_a_message_is_refused_as_a_whole() -> None:
    desk = Desk()
    count = 4 * 1024 * 1024 // 1000 + 1
    entries = [BatchEntry(0, b"x" * 1000, ID.format(number).encode()) for number in range(count)]
    assert desk.broker.send("t", write_batch(entries), m=True).code == 13
    assert desk.broker.pull("t").code != 0
