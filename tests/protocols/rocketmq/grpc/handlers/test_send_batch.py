"""SendMessage calls that arrive together: the batch is read, stored and answered with the same result as one by one.
Real frames, without a socket."""

from __future__ import annotations

import zlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from protocols.grpc.http2_peer import word
from protocols.rocketmq.grpc.grpc_desk import GrpcDesk, message
from protocols.rocketmq.grpc.grpc_line import Line
from protocols.rocketmq.rocketmq_desk import NOW_MS, units_of

from trimq.core.security.access import Right
from trimq.formats.rocketmq_unit.unit import Unit
from trimq.model import DEFAULT_NAMESPACE, SYSTEM
from trimq.protocols.grpc.frames import ErrorCode, FrameType
from trimq.protocols.rocketmq.grpc.wire import wire
from trimq.protocols.rocketmq.grpc.wire.enums import Code, DigestType, MessageType
from trimq.protocols.rocketmq.grpc.wire.responses import encode_ack_response, encode_send_responses

TOPICS = {"t": "NORMAL", "f": "FIFO", "d": "DELAY", "x": "TRANSACTION"}
QUEUES = 3


def desk_of(**given: Any) -> GrpcDesk:
    desk = GrpcDesk(**given)
    for name, kind in TOPICS.items():
        desk.make_topic(name, kind, QUEUES)
    return desk


def request(*messages: Any) -> Any:
    return wire.SendMessageRequest(messages=messages)


def plain(number: int, topic: str = "t", **fields: Any) -> Any:
    return request(message(topic, b"%d" % number, message_id=f"M{number}", **fields))


def codes(answers: list[Any]) -> list[int]:
    return [answer.status.code for answer in answers]


def all_units(desk: GrpcDesk) -> list[Unit]:
    return [
        unit
        for topic in TOPICS
        for queue in range(QUEUES)
        if (found := desk.desk.broker.pull(topic, queue=queue)).code == 0
        for unit in units_of(found)
    ]


def refusals(desk: GrpcDesk) -> list[bytes]:
    """Metrics that count refusals."""
    return [row for row in desk.desk.metrics.render().splitlines() if b"refused" in row]


def test_messages_that_come_together_are_stored_together_and_answered_each() -> None:
    desk = desk_of()
    line = Line(desk)
    answers = line.ask(*(plain(number) for number in range(5)))
    assert line.runs == [5]
    assert codes(answers) == [Code.OK] * 5
    assert [answer.entries[0].message_id for answer in answers] == [f"M{number}" for number in range(5)]
    assert sorted(unit.body for unit in all_units(desk)) == [b"%d" % number for number in range(5)]
    sums = desk.desk.doors._services.traffic.sent("t")
    assert sums is not None
    assert sums.total() == (5, 5)


def test_nothing_is_answered_before_it_is_durable() -> None:
    desk = desk_of()
    line = Line(desk)
    line.peer.say(line.frames(plain(1).SerializeToString()) + line.frames(plain(2).SerializeToString()))
    desk.desk.runner.end_pass()
    line.peer.moved(desk.desk.runner.passes.durable)
    assert (line.peer.answers, line.peer.owed) == ({}, 2)
    line.settle()
    assert codes([line.answer(1), line.answer(3)]) == [Code.OK] * 2


FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "tag": st.sampled_from(["A", "é", "", "a|b", " ", "a\x01"]),
    "keys": st.sampled_from([["k1"], ["k1", "k2"], [], ["é"], [" "], ["a\x02b"]]),
    "message_id": st.sampled_from(["M", "", " ", "é", "a b", 'a"b', "a\x01b", "x" * 127, "x" * 128, "x" * 300]),
    "message_group": st.sampled_from(["g", "h", "", "é", "x" * 64]),
    "born_host": st.sampled_from(["", "there", "é", "a\x01"]),
    "trace_context": st.sampled_from(["", "00-ab", "a\x02"]),
    "kind": st.sampled_from([*MessageType]),
    "due_ms": st.sampled_from([0, NOW_MS + 1000, NOW_MS + 10**12]),
    "priority": st.just(3),
    "lite_topic": st.just("l"),
    "body_encoding": st.sampled_from([0, 1, 2]),
    "delivery_attempt": st.sampled_from([0, 1, 7]),
    "body_digest": st.sampled_from(
        [
            wire.Digest(),
            wire.Digest(type=DigestType.CRC32, checksum="1"),
            wire.Digest(type=DigestType.CRC32, checksum=f"{zlib.crc32(b'hello'):X}"),
            wire.Digest(type=0, checksum="1"),
        ]
    ),
    "properties": st.sampled_from(
        [
            {"__SHARDINGKEY": "g"},
            {"a": "b"},
            {"a": "", "c": "é"},
            {"": "a"},
            {"a": "\x01"},
            {"TAGS": "A"},
            {"TRIMQ_TTL_MS": "1000"},
            {"TRIMQ_TTL_MS": "x"},
            {"n": "x" * 17_000},
            {f"n{number}": "v" for number in range(129)},
        ]
    ),
}


@st.composite
def requests(draw: st.DrawFn) -> list[Any]:
    """Requests: most are plain, some are special in one or two fields."""
    found: list[Any] = []
    for number in range(draw(st.integers(1, 8))):
        changed = draw(st.lists(st.sampled_from([*FIELDS, "topic", "topic", "body", "count"]), max_size=2))
        fields: dict[str, Any] = {name: draw(FIELDS[name]) for name in changed if name in FIELDS}
        fields.setdefault("message_id", f"M{number}")
        topic = draw(st.sampled_from(["f", "d", "x", "none", "%RETRY%g", "a b", ""])) if "topic" in changed else "t"
        body = draw(st.sampled_from([b"", b"x" * 17_000, b"x" * 5001])) if "body" in changed else b"hello"
        count = draw(st.sampled_from([0, 2])) if "count" in changed else 1
        made = request(*[message(topic, body, **fields)] * count)
        if draw(st.integers(0, 5)) == 0 and made.messages:
            seconds = draw(st.sampled_from([0, -5, 253_402_300_800, 2**40]))
            made.messages[0].system_properties.born_timestamp.seconds = seconds
        found.append(made)
    return found


@settings(max_examples=120, deadline=None)
@given(requests())
def test_a_batch_is_stored_and_answered_as_single_calls_are(found: list[Any]) -> None:
    together, alone = desk_of(message_bytes=16_500), desk_of(message_bytes=16_500)
    lines = Line(together), Line(alone, is_alone=True)
    for line in lines:
        line.ask(*found)
    got, expected = ({number: each.data for number, each in line.peer.answers.items()} for line in lines)
    assert {number: got[number] for number in expected} == expected
    assert all_units(together) == all_units(alone)
    assert refusals(together) == refusals(alone)


def test_messages_of_a_group_meet_in_one_queue() -> None:
    desk = desk_of()
    line = Line(desk)
    assert codes(line.ask(*(plain(number, "f", message_group="g") for number in range(4)))) == [Code.OK] * 4
    assert line.runs == [4]
    assert {unit.queue_id for unit in all_units(desk)} == {all_units(desk)[0].queue_id}
    assert [unit.body for unit in all_units(desk)] == [b"0", b"1", b"2", b"3"]


def test_those_that_came_together_are_found_by_their_keys() -> None:
    desk = desk_of()
    ids = [f"01{number:032X}" for number in range(10)]
    Line(desk).ask(*(request(message("t", message_id=id, keys=["k", f"k{id}"])) for id in ids))
    commit_log = desk.desk.doors._services.commit_log
    for key, count in [*((id, 1) for id in ids), ("k", 10), (f"k{ids[3]}", 1)]:
        assert len(list(commit_log.lookup.find_key(SYSTEM, "t", key, 0, 2**62))) == count


@pytest.mark.parametrize("is_alone", [False, True])
def test_a_write_that_fails_refuses_them_all(is_alone: bool) -> None:
    desk = desk_of()
    desk.desk.fail_writes("commitlog")
    line = Line(desk, is_alone)
    assert codes(line.ask(*(plain(number) for number in range(3)))) == [Code.INTERNAL_SERVER_ERROR] * 3
    assert line.runs == ([] if is_alone else [3])
    desk.desk.files.before = lambda operation, name: None
    (answer,) = line.ask(plain(4))
    assert (answer.status.code, answer.entries[0].offset) == (Code.OK, 0)


@pytest.mark.parametrize("is_alone", [False, True])
def test_a_broker_that_takes_no_writes_refuses_them_all(is_alone: bool) -> None:
    desk = desk_of()
    desk.desk.core.stop_writes()
    line = Line(desk, is_alone)
    answers = line.ask(*(plain(number) for number in range(3)))
    assert codes(answers) == [Code.INTERNAL_SERVER_ERROR] * 3
    assert len({answer.status.message for answer in answers}) == 1


def test_where_the_next_file_cannot_be_created_the_rest_of_a_batch_is_refused() -> None:
    desk = desk_of(commit_file_bytes=1 << 16)

    def refuse(operation: str, name: str) -> None:
        if operation == "create" and "commitlog" in name:
            raise OSError("no more files")

    desk.desk.files.before = refuse
    line = Line(desk)
    found = codes(line.ask(*(request(message("t", b"x" * 8000)) for _ in range(12))))
    kept = found.count(Code.OK)
    assert 0 < kept < 12
    assert found == [Code.OK] * kept + [Code.INTERNAL_SERVER_ERROR] * (12 - kept)
    assert len(all_units(desk)) == kept


@pytest.mark.parametrize("is_alone", [False, True])
def test_messages_not_on_disk_in_time_are_answered_with_a_flush_timeout(is_alone: bool) -> None:
    desk = desk_of(flush_timeout_ms=1000)
    line = Line(desk, is_alone)
    line.peer.say(line.frames(plain(1).SerializeToString()) + line.frames(plain(2).SerializeToString()))
    desk.desk.runner.end_pass()
    while desk.desk.liveness.step(desk.desk.liveness.now_ms() + 1000):
        desk.desk.runner.end_pass()
    line.peer.moved(desk.desk.runner.passes.durable)
    answers = [line.answer(1), line.answer(3)]
    assert codes(answers) == [Code.MASTER_PERSISTENCE_TIMEOUT] * 2
    assert [len(answer.entries) for answer in answers] == [1, 1]


def test_a_cancelled_call_of_a_batch_is_not_answered_but_stored() -> None:
    desk = desk_of()
    line = Line(desk)
    raws = [plain(number).SerializeToString() for number in range(3)]
    line.peer.say(b"".join(map(line.frames, raws)) + word(FrameType.RST_STREAM, 3, ErrorCode.CANCEL))
    line.settle()
    assert sorted(line.peer.answers) == [1, 5]
    assert len(all_units(desk)) == 3


def test_clients_of_one_connection_are_kept_apart() -> None:
    desk = desk_of()
    line = Line(desk)
    raws = [plain(number).SerializeToString() for number in range(3)]
    line.peer.say(line.frames(raws[0]) + line.frames(raws[1], x_mq_client_id="c2") + line.frames(raws[2]))
    line.settle()
    assert line.runs == [1, 1]
    assert codes([line.answer(number) for number in (1, 3, 5)]) == [Code.OK] * 3


def test_a_client_without_an_id_is_refused() -> None:
    line = Line(desk_of())
    line.peer.say(line.frames(plain(1).SerializeToString(), x_mq_client_id=""))
    assert (line.runs, line.answer(1).status.code) == ([], Code.CLIENT_ID_REQUIRED)


def test_an_invalid_request_ends_its_call() -> None:
    line = Line(desk_of())
    line.peer.say(line.frames(plain(1).SerializeToString()) + line.frames(b"\xff\xff"))
    assert line.peer.answers[3].status == "3"


def test_a_topic_that_went_between_two_turns_is_not_found_by_the_next() -> None:
    desk = desk_of()
    line = Line(desk)
    assert codes(line.ask(plain(1))) == [Code.OK]
    assert desk.desk.broker.ask(215, {"topic": "t"}).code == 0
    assert line.ask(plain(2))[0].status.code != Code.OK
    assert line.runs == [1]


@pytest.mark.parametrize("right", ["", "f"])
def test_without_write_permission_each_message_is_refused(right: str) -> None:
    desk = desk_of()
    access = desk.desk.core.broker._access
    access.define_user("somebody", "secret")
    access.grant(Right("anonymous", DEFAULT_NAMESPACE, write=right, read=".*"))
    desk.desk.runner.settle()
    got = codes(Line(desk).ask(plain(0), plain(1, "f", message_group="g"), plain(2)))
    assert got == [Code.FORBIDDEN, Code.OK if right else Code.FORBIDDEN, Code.FORBIDDEN]


def test_repeated_messages_are_found_where_that_is_asked_for() -> None:
    line = Line(desk_of(remembered_ids=10))
    answers = line.ask(plain(1), plain(1))
    assert line.runs == []
    assert [answer.entries[0].offset for answer in answers] == [0, 0]


@given(st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=1, max_size=127), st.integers(0, 2**63 - 1))
def test_answers_are_written_as_protobuf_writes_them(id: str, offset: int) -> None:
    ok = wire.Status(code=Code.OK, message="OK")
    entry = wire.SendResultEntry(status=ok, message_id=id, transaction_id=id, offset=offset)
    expected = wire.SendMessageResponse(status=ok, entries=[entry]).SerializeToString()
    assert encode_send_responses([id, "more"], [offset]) == [expected]


@given(st.lists(st.tuples(st.text(max_size=200), st.text(max_size=200))))
def test_acknowledgements_are_answered_as_protobuf_writes_it(entries: list[tuple[str, str]]) -> None:
    ok = wire.Status(code=Code.OK, message="OK")
    results = [wire.AckMessageResultEntry(message_id=id, receipt_handle=handle, status=ok) for id, handle in entries]
    assert encode_ack_response(entries) == wire.AckMessageResponse(status=ok, entries=results).SerializeToString()
