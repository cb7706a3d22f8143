"""Batches in one request: a plain batch is stored and answered with the same result as message by message."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from protocols.rocketmq.rocketmq_desk import Desk, units_of

from trimq.core.security.access import Right
from trimq.formats.rocketmq_unit.batch_body import BatchEntry, write_batch
from trimq.formats.rocketmq_unit.unit import Unit
from trimq.model import DEFAULT_NAMESPACE
from trimq.protocols.rocketmq.wire.fast_properties import PropertyTemplates

UNIQUE = "UNIQ_KEY\x017F00000100000000000000000000{:04d}\x02"
SEND_BATCH = {"a": "pg", "b": "t", "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 77, "h": 0, "i": "", "m": True}


def desk_of(is_plain: bool, **settings: Any) -> Desk:
    """`is_plain`: whether batches may take the fast path."""
    desk = Desk(**settings)
    assert desk.broker.send("t", b"first").code == 0
    if not is_plain:
        desk.doors._services.sending.batch_templates = PropertyTemplates("", ("UNIQ_KEY",))
    return desk


def batch(count: int, body: bytes = b"hello") -> bytes:
    return write_batch([BatchEntry(0, body, UNIQUE.format(number).encode()) for number in range(count)])


def answer_of(desk: Desk, body: bytes, **fields: Any) -> tuple[int, str | None, dict[str, str]]:
    answer = desk.broker.ask(320, {**SEND_BATCH, **fields}, body)
    return answer.code, answer.remark, answer.fields


def stored(desk: Desk) -> list[Unit]:
    return [unit for number in range(4) for unit in units_of(desk.broker.pull("t", queue=number))]


def by_key(desk: Desk, key: str) -> list[Unit]:
    fields = {"topic": "t", "key": key, "maxNum": 32, "beginTimestamp": 0, "endTimestamp": 2**60}
    return units_of(desk.broker.ask(12, fields))


ITEMS = ("TAGS\x01A\x02", "KEYS\x01k1 k2\x02", "x\x01é\x02", "\x02", "a\x01\x02", "x\x01y\x02", "n\x01\x00\x02")
EXPIRIES = ("TRIMQ_TTL_MS\x0199\x02", "TRIMQ_TTL_MS\x01odd\x02")
PROPERTIES = st.lists(st.sampled_from([*ITEMS, *EXPIRIES, "DELAY\x011\x02", "TRAN_MSG\x01true\x02"]), max_size=2)


@st.composite
def entries(draw: st.DrawFn) -> list[BatchEntry]:
    """Messages: most are plain, some are special."""
    found = []
    for number in range(draw(st.integers(0, 5))):
        text = UNIQUE.format(number)
        if draw(st.integers(0, 3)) == 0:
            text = draw(st.sampled_from(["", text])) + "".join(draw(PROPERTIES))
        if draw(st.booleans()):
            text = text.removesuffix("\x02")
        body = draw(st.sampled_from([b"hello", b"hello", b"", b"x" * 9000]))
        found.append(BatchEntry(draw(st.sampled_from([0, 3])), body, text.encode()))
    return found


FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "b": st.sampled_from(["t", "new", "%RETRY%g", "a b"]),
        "e": st.sampled_from([0, 3, 99]),
        "f": st.sampled_from([1, 4, 12, 48]),
        "i": st.sampled_from(["TAGS\x01A\x02", "DELAY\x011\x02", "TRAN_MSG\x01true\x02"]),
        "j": st.just(3),
    },
)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(entries(), FIELDS, st.sampled_from([0, 0, 0, 1, -1])), max_size=3))
def test_a_batch_has_the_same_result_in_one_step_and_message_by_message(
    batches: list[tuple[list[BatchEntry], dict[str, Any], int]],
) -> None:
    plain, slow = desk_of(True, message_bytes=16_000), desk_of(False, message_bytes=16_000)
    for messages, fields, cut in batches:
        body = write_batch(messages)
        body = body + b"x" if cut > 0 else body[:cut] if cut else body
        assert answer_of(plain, body, **fields) == answer_of(slow, body, **fields)
    assert stored(plain) == stored(slow)
    for key in ("k1", "k2", f"7F00000100000000000000000000{0:04d}"):
        assert by_key(plain, key) == by_key(slow, key)
    if (sums := plain.doors._services.traffic.sent("t")) is not None:
        others = slow.doors._services.traffic.sent("t")
        assert others is not None
        assert sums.total() == others.total()


@pytest.mark.parametrize("is_plain", [False, True])
def test_a_write_that_fails_refuses_the_batch_and_its_offsets_are_given_again(is_plain: bool) -> None:
    desk = desk_of(is_plain)
    desk.fail_writes("commitlog")
    assert answer_of(desk, batch(3))[0] == 1
    desk.files.before = lambda operation, name: None
    assert desk.broker.send("t", b"next").fields["queueOffset"] == "1"


@pytest.mark.parametrize("is_plain", [False, True])
def test_a_batch_that_does_not_fit_into_the_file_is_stored_whole_in_the_next(is_plain: bool) -> None:
    desk = desk_of(is_plain, commit_file_bytes=1 << 16)
    for first in (1, 8, 15):
        code, _, fields = answer_of(desk, batch(7, b"x" * 4000))
        assert (code, fields["queueOffset"]) == (0, str(first))
    assert [len(unit.body) for unit in stored(desk)] == [5] + [4000] * 21


@pytest.mark.parametrize("is_plain", [False, True])
def test_where_the_next_file_cannot_be_created_the_whole_batch_is_refused(is_plain: bool) -> None:
    desk = desk_of(is_plain, commit_file_bytes=1 << 16)
    assert answer_of(desk, batch(9, b"x" * 4000))[0] == 0

    def refuse(operation: str, name: str) -> None:
        if operation == "create" and "commitlog" in name:
            raise OSError("no more files")

    desk.files.before = refuse
    assert answer_of(desk, batch(9, b"x" * 4000))[0] == 1
    desk.files.before = lambda operation, name: None
    assert desk.broker.send("t", b"next").fields["queueOffset"] == "10"


@pytest.mark.parametrize("is_plain", [False, True])
def test_a_batch_that_is_larger_than_a_file_is_refused(is_plain: bool) -> None:
    desk = desk_of(is_plain, commit_file_bytes=1 << 16)
    assert answer_of(desk, batch(20, b"x" * 4000))[0] == 13
    assert len(stored(desk)) == 1


@pytest.mark.parametrize("is_plain", [False, True])
def test_without_write_permission_the_batch_is_refused(is_plain: bool) -> None:
    desk = desk_of(is_plain)
    access = desk.core.broker._access
    access.define_user("somebody", "secret")
    access.grant(Right("anonymous", DEFAULT_NAMESPACE, write="u", read=".*"))
    desk.runner.settle()
    assert answer_of(desk, batch(3))[0] == 16
    assert len(stored(desk)) == 1


@pytest.mark.parametrize("is_plain", [False, True])
def test_a_batch_that_is_not_on_disk_in_time_is_answered_with_a_flush_timeout(is_plain: bool) -> None:
    desk = desk_of(is_plain, flush_timeout_ms=1000)
    reply = desk.broker.begin(320, SEND_BATCH, batch(3))
    assert reply is not None
    desk.runner.end_pass()
    while desk.liveness.step(desk.liveness.now_ms() + 1000):
        desk.runner.end_pass()
    answer = desk.take(reply)
    assert (answer.code, answer.fields["queueOffset"]) == (10, "1")
