"""Send commands that arrive together: the batch is read, stored and answered with the same result as one by one."""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from protocols.rocketmq.rocketmq_desk import NOW_MS, Desk, Peer, units_of
from protocols.rocketmq.rocketmq_desk import receive as arriving

from trimq.core.security.access import Right
from trimq.formats.rocketmq_unit.batch_body import write_batch
from trimq.formats.rocketmq_unit.unit import Unit
from trimq.model import DEFAULT_NAMESPACE
from trimq.protocols.contract import Parts, Reply
from trimq.protocols.rocketmq.handlers.send_batch import SendBatcher
from trimq.wire.remoting import Command, RemotingConnection

TOPICS = ("t", "u")
UNIQUE = "UNIQ_KEY\x017F00000100000000000000000000{:04d}\x02"


def sent(
    number: int, is_alone: bool = False, code: int = 310, flag: int = 0, body: bytes = b"", **fields: Any
) -> bytes:
    """Encodes a send command. `is_alone`: with a header that the fast path does not accept."""
    given = {"a": "pg", "b": "t", "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 77, "h": 0, "i": UNIQUE.format(number)}
    texts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in (given | fields).items()}
    names: dict[str, object] = {"opaque": number, "flag": flag, "extFields": texts}
    header = json.dumps(names | {"code": code} if is_alone else {"code": code} | names).encode()
    body = body or b"%d" % number
    return struct.pack(">iI", 4 + len(header) + len(body), len(header)) + header + body


def receive(peer: Peer, data: bytes) -> list[tuple[int, Reply | None]]:
    """Number of messages in each batch (0 for a single command), with its reply."""
    made = []
    for _ in arriving(peer.conversation, data):
        while (event := peer.conversation.next_event()) is not None:
            taken = len(event.asked) if isinstance(event, SendBatcher) else 0
            made.append((taken, peer.conversation.handle(event)))
    return made


def commands(parts: Parts) -> list[Command]:
    connection = RemotingConnection()
    connection.receive(b"".join(parts))
    found = []
    while (command := connection.next_event()) is not None:
        found.append(command)
    return found


def answers(desk: Desk, *frames: bytes) -> list[tuple[int, int, str | None, dict[str, str]]]:
    """Opaque, code, remark and fields of each response, in the order of the requests."""
    replies = [reply for _, reply in receive(desk.broker, b"".join(frames)) if reply is not None]
    desk.runner.settle()
    found = []
    for reply in replies:
        assert reply.is_ready(desk.runner.passes.written, desk.runner.passes.durable)
        got = commands(reply.take())
        assert len(got) == reply.count
        found += [(each.opaque, each.code, each.remark, each.fields) for each in got]
    return sorted(found, key=lambda each: each[0])


def desk_of(**settings: Any) -> Desk:
    desk = Desk(**settings)
    for topic in TOPICS:
        assert desk.broker.send(topic, b"first").code == 0
    return desk


def all_units(desk: Desk) -> list[Unit]:
    return [
        unit
        for topic in TOPICS
        for queue in range(4)
        if (found := desk.broker.pull(topic, queue=queue)).code == 0
        for unit in units_of(found)
    ]


def runs(made: list[tuple[int, Reply | None]]) -> list[int]:
    return [taken for taken, _ in made if taken]


def test_messages_that_come_together_are_taken_together_and_answered_each() -> None:
    desk = desk_of()
    made = receive(desk.broker, b"".join(sent(number, e=number % 2) for number in range(5)))
    assert runs(made) == [5]
    ((_, reply),) = made
    assert reply is not None
    assert reply.count == 5
    desk.runner.settle()
    found = commands(reply.take())
    assert [(each.opaque, each.code, each.flag) for each in found] == [(number, 0, 1) for number in range(5)]
    assert [each.fields["queueOffset"] for each in found] == ["1", "0", "2", "1", "3"]
    assert [bytes(unit.body) for unit in units_of(desk.broker.pull("t"))] == [b"first", b"0", b"2", b"4"]
    sums = desk.doors._services.traffic.sent("t")
    assert sums is not None
    assert sums.total() == (6, 10)


FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "b": st.sampled_from(["t", "t", "u", "new", "%RETRY%g", "SELF_TEST_TOPIC", "SCHEDULE_TOPIC_XXXX", "a b"]),
    "e": st.sampled_from([0, 0, 1, 3, 4, 99]),
    "f": st.sampled_from([0, 0, 1, 4, 8, 12, 16, 48]),
    "g": st.sampled_from([0, 77, 2**63 - 1, -1, 2**63]),
    "h": st.sampled_from([0, 7, -1, 2**31]),
    "j": st.sampled_from([0, 3]),
    "m": st.sampled_from([False, False, True]),
}
PROPERTIES = st.lists(
    st.sampled_from(
        [
            "TAGS\x01A\x02",
            "KEYS\x01k1 k2\x02",
            "DELAY\x011\x02",
            "x\x01é\x02",
            "\x01",
            "\x02",
            "a\x01\x02",
            "x\x01y\x02",
            "TRAN_MSG\x01true\x02",
            "TRACE_ON\x01false\x02",
            "CLUSTER\x01c\x02",
            "UNIQ_KEY\x01other\x02",
            "n\x01\x00\x02",
        ]
    ),
    max_size=2,
).map("".join)


@st.composite
def messages(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Messages: most are plain, some are special in one or two fields."""
    found: list[dict[str, Any]] = []
    for number in range(draw(st.integers(1, 8))):
        changed = draw(st.lists(st.sampled_from([*FIELDS, "i", "i", "flag", "code", "body"]), max_size=2))
        fields: dict[str, Any] = {name: draw(FIELDS[name]) for name in changed if name in FIELDS}
        if "i" in changed:
            text = draw(PROPERTIES) + UNIQUE.format(number) + draw(PROPERTIES)
            fields["i"] = draw(st.sampled_from([text, text.removesuffix("\x02")]))
        if "flag" in changed:
            fields["flag"] = 2
        if "code" in changed:
            fields["code"] = draw(st.sampled_from([320, 34]))
        if "body" in changed:
            fields["body"] = draw(st.sampled_from([b"x" * 17_000, b"x" * 5001, write_batch([(0, b"in", b"")])]))
        found.append(fields)
    return found


@settings(max_examples=60, deadline=None)
@given(messages())
def test_a_batch_is_stored_and_answered_as_single_commands_are(messages: list[dict[str, Any]]) -> None:
    together, alone = desk_of(message_bytes=16_000), desk_of(message_bytes=16_000)
    got = answers(together, *(sent(number, **fields) for number, fields in enumerate(messages)))
    expected = answers(alone, *(sent(number, True, **fields) for number, fields in enumerate(messages)))
    assert got == expected
    assert all_units(together) == all_units(alone)


DELAYS = st.sampled_from(
    [
        "",
        "DELAY\x011\x02",
        "DELAY\x0102\x02",
        "DELAY\x0199\x02",
        "DELAY\x01x\x02",
        "DELAY\x010\x02",
        "TIMER_DELAY_SEC\x015\x02",
        "TIMER_DELAY_MS\x011500\x02",
        f"TIMER_DELIVER_MS\x01{NOW_MS + 3000}\x02",
        f"TIMER_DELIVER_MS\x01{NOW_MS - 3000}\x02",
        "TIMER_DELIVER_MS\x019999999999999999\x02",
        "DELAY\x011\x02TIMER_DELAY_SEC\x015\x02",
        "TIMER_DELAY_SEC\x015\x02TIMER_DELAY_MS\x01\x02",
        "TIMER_DELAY_SEC\x015\x02REAL_TOPIC\x01u\x02",
        "TIMER_DELAY_SEC\x015\x02TIMER_OUT_MS\x011\x02",
        "X_DELAY\x011\x02",
    ]
)


@settings(max_examples=60, deadline=None)
@given(messages(), st.lists(DELAYS, min_size=8, max_size=8))
def test_delayed_messages_of_a_batch_are_delivered_as_single_ones_are(
    messages: list[dict[str, Any]], delays: list[str]
) -> None:
    together, alone = desk_of(message_bytes=16_000), desk_of(message_bytes=16_000)
    for number, fields in enumerate(messages):
        fields["i"] = delays[number] + fields.get("i", UNIQUE.format(number))
    got = answers(together, *(sent(number, **fields) for number, fields in enumerate(messages)))
    expected = answers(alone, *(sent(number, True, **fields) for number, fields in enumerate(messages)))
    assert got == expected
    assert all_units(together) == all_units(alone)
    for desk in (together, alone):
        desk.advance(7_200_000)
    assert all_units(together) == all_units(alone)


def test_delayed_messages_that_come_together_are_taken_together_and_may_be_recalled() -> None:
    desk = desk_of()
    delays = ("TIMER_DELAY_SEC\x015\x02", "DELAY\x011\x02", "", "TIMER_DELAY_MS\x015000\x02KEYS\x01k1 k2\x02")
    frames = [sent(number, b="tu"[number % 2], i=delay + UNIQUE.format(number)) for number, delay in enumerate(delays)]
    ((taken, reply),) = receive(desk.broker, b"".join(frames))
    assert taken == 4
    desk.runner.settle()
    assert reply is not None
    got = [each.fields for each in commands(reply.take())]
    assert ["recallHandle" in fields for fields in got] == [True, False, False, True]
    for topic, count in (("t", 3), ("u", 3)):  # including the first message of each topic
        sums = desk.doors._services.traffic.sent(topic)
        assert sums is not None
        assert sums.total()[0] == count
    assert desk.broker.ask(370, {"topic": "t", "recallHandle": got[0]["recallHandle"]}).code == 0
    desk.advance(5_000)
    assert [bytes(unit.body) for unit in all_units(desk)] == [b"first", b"2", b"first", b"1", b"3"]


@pytest.mark.parametrize("is_alone", [False, True])
def test_a_write_that_fails_refuses_them_all(is_alone: bool) -> None:
    desk = desk_of()
    desk.fail_writes("commitlog")
    got = answers(desk, *(sent(number, is_alone) for number in range(3)))
    assert [(opaque, code, fields["MSG_REGION"]) for opaque, code, _, fields in got] == [
        (number, 1, "DefaultRegion") for number in range(3)
    ]
    desk.files.before = lambda operation, name: None
    assert desk.broker.send("t", b"next").fields["queueOffset"] == "1"


@pytest.mark.parametrize("is_alone", [False, True])
def test_a_broker_that_takes_no_writes_refuses_them_all(is_alone: bool) -> None:
    desk = desk_of()
    desk.core.stop_writes()
    got = answers(desk, *(sent(number, is_alone) for number in range(3)))
    assert [(opaque, code) for opaque, code, _, _ in got] == [(number, 14) for number in range(3)]
    assert len({remark for _, _, remark, _ in got}) == 1


def test_messages_not_on_disk_in_time_are_answered_with_a_flush_timeout() -> None:
    desk = desk_of(flush_timeout_ms=1000)
    ((_, reply),) = receive(desk.broker, sent(0) + sent(1))
    assert reply is not None
    desk.runner.end_pass()
    while desk.liveness.step(desk.liveness.now_ms() + 1000):
        desk.runner.end_pass()
    assert reply.is_ready(desk.runner.passes.written, desk.runner.passes.durable)
    assert [(each.code, each.fields["queueOffset"]) for each in commands(reply.take())] == [(10, "1"), (10, "2")]


def test_a_full_file_does_not_end_a_batch() -> None:
    desk = desk_of(commit_file_bytes=1 << 16)
    bodies = [b"%02d" % number * 4000 for number in range(12)]
    got = answers(desk, *(sent(number, body=body) for number, body in enumerate(bodies)))
    assert [code for _, code, _, _ in got] == [0] * 12
    assert [bytes(unit.body) for unit in units_of(desk.broker.pull("t"))][1:] == bodies


def test_where_the_next_file_cannot_be_created_the_rest_of_a_batch_is_refused() -> None:
    desk = desk_of(commit_file_bytes=1 << 16)

    def refuse(operation: str, name: str) -> None:
        if operation == "create" and "commitlog" in name:
            raise OSError("no more files")

    desk.files.before = refuse
    bodies = [b"%02d" % number * 4000 for number in range(12)]
    codes = [code for _, code, _, _ in answers(desk, *(sent(number, body=body) for number, body in enumerate(bodies)))]
    kept = codes.count(0)
    assert 0 < kept < 12
    assert codes == [0] * kept + [1] * (12 - kept)
    desk.files.before = lambda operation, name: None
    assert desk.broker.send("t", b"next").fields["queueOffset"] == str(1 + kept)


def test_a_batch_is_not_longer_than_its_budget() -> None:
    desk = desk_of()
    frames = b"".join(sent(number) for number in range(150))
    made = receive(desk.broker, frames)
    assert max(runs(made)) == 64
    assert sum(runs(made)) == 150


def test_a_topic_that_went_between_two_turns_is_not_found_by_the_next() -> None:
    desk = desk_of()
    assert runs(receive(desk.broker, sent(0))) == [1]
    special = sent(1, i="TAGS\x01A\x02")  # its topic is looked up, and the fast path refuses it
    assert runs(receive(desk.broker, special)) == []
    desk.runner.settle()
    assert desk.broker.ask(215, {"topic": "t"}).code == 0
    assert [code for _, code, _, _ in answers(desk, sent(2, c="none"))] == [17]


@pytest.mark.parametrize("right", ["", "u"])
def test_without_write_permission_each_message_is_refused(right: str) -> None:
    desk = desk_of()
    access = desk.core.broker._access
    access.define_user("somebody", "secret")
    access.grant(Right("anonymous", DEFAULT_NAMESPACE, write=right, read=".*"))
    desk.runner.settle()
    got = answers(desk, sent(0), sent(1, b="u"), sent(2))
    assert [code for _, code, _, _ in got] == [16, 0 if right else 16, 16]


def test_a_name_server_stores_no_message() -> None:
    desk = desk_of()
    replies = [reply for _, reply in receive(desk.names, sent(1) + sent(2)) if reply is not None]
    responses = [command for reply in replies for command in commands(reply.take())]
    assert [(each.code, each.remark) for each in responses] == [(3, " request type 310 not supported")] * 2
    assert [unit.body for unit in all_units(desk)] == [b"first"] * 2


@pytest.mark.parametrize("is_alone", [False, True])
@pytest.mark.parametrize(("right", "code"), [("t|u", 0), ("SCHEDULE.*|rmq_sys.*", 16)])
def test_write_permission_on_a_topic_includes_delayed_messages(right: str, code: int, is_alone: bool) -> None:
    desk = desk_of()
    access = desk.core.broker._access
    access.define_user("somebody", "secret")
    access.grant(Right("anonymous", DEFAULT_NAMESPACE, write=right, read=".*"))
    desk.runner.settle()
    delayed = [
        f"{UNIQUE.format(number)}{asked}\x02" for number, asked in enumerate(["DELAY\x012", "TIMER_DELAY_SEC\x019"])
    ]
    frames = [sent(0, is_alone), *(sent(number, is_alone, i=text) for number, text in enumerate(delayed, 1))]
    assert [each for _, each, _, _ in answers(desk, *frames)] == [code] * 3


@pytest.mark.parametrize("is_alone", [False, True])
def test_a_refused_message_is_not_answered_with_a_flush_timeout(is_alone: bool) -> None:
    desk = desk_of(flush_timeout_ms=1000)
    desk.fail_writes("commitlog")
    made = [reply for _, reply in receive(desk.broker, sent(0, is_alone) + sent(1, is_alone)) if reply is not None]
    desk.runner.end_pass()
    desk.files.before = lambda operation, name: None
    while desk.liveness.step(desk.liveness.now_ms() + 1000):
        desk.runner.end_pass()  # the removal of the failed write is not synced either
    assert not any(reply.is_ready(desk.runner.passes.written, desk.runner.passes.durable) for reply in made)
    desk.runner.settle()
    assert [each.code for reply in made for each in commands(reply.take())] == [1, 1]
