"""Acknowledgements over gRPC that arrive together: the batch is read, applied and answered with the same result as one
by one. Real frames, without a socket."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from protocols.grpc.http2_peer import word
from protocols.rocketmq.grpc.grpc_desk import GrpcDesk, bodies_of, handle_of, message
from protocols.rocketmq.grpc.grpc_line import Line

from trimq.core.security.access import Right
from trimq.model import DEFAULT_NAMESPACE
from trimq.protocols.grpc.frames import ErrorCode, FrameType
from trimq.protocols.rocketmq.grpc.handlers.ack_batch import AckBatcher
from trimq.protocols.rocketmq.grpc.wire import wire
from trimq.protocols.rocketmq.grpc.wire.enums import Code
from trimq.protocols.rocketmq.grpc.wire.fields import field, read_texts
from trimq.protocols.rocketmq.grpc.wire.responses import encode_ack_entry_response, encode_ack_response

SECOND = 1000
GROUPS: dict[str, dict[str, Any]] = {"g": {}, "h": {}, "o": {"consumeMessageOrderly": True}}


def entry(handle: str, id: str = "M", **fields: Any) -> Any:
    return wire.AckMessageEntry(message_id=id, receipt_handle=handle, **fields)


def request(*entries: Any, group: str = "g", topic: str = "t") -> Any:
    return wire.AckMessageRequest(group=wire.Resource(name=group), topic=wire.Resource(name=topic), entries=entries)


def desk_of(count: int = 4) -> GrpcDesk:
    """Desk with this many messages in each of two topics."""
    desk = GrpcDesk()
    for topic in ("t", "u"):
        desk.make_topic(topic, queues=2)
    for group, changes in GROUPS.items():
        desk.make_group(group, **changes)
    phone = desk.client()
    for number in range(2 * count):
        phone.send(message("tu"[number % 2], b"%d" % number, message_id=f"M{number}"))
    return desk


def received(desk: GrpcDesk, group: str = "g", topic: str = "t", **fields: Any) -> list[str]:
    return [handle_of(each) for each in desk.client().receive(topic, group, **fields)]


def line_of(desk: GrpcDesk, is_alone: bool = False) -> Line:
    return Line(desk, is_alone, "AckMessage")


def codes(answers: list[Any]) -> list[int]:
    return [answer.status.code for answer in answers]


def left(desk: GrpcDesk) -> list[list[bytes]]:
    """Messages redelivered to each group after all leases have expired."""
    desk.desk.advance(60 * SECOND)
    return [sorted(bodies_of(desk.client().receive(topic, group))) for topic in ("t", "u") for group in GROUPS]


def test_a_batch_of_acks_is_applied_together_and_answered_each() -> None:
    desk = desk_of()
    handles = received(desk)
    line = line_of(desk)
    answers = line.ask(*(request(entry(handle)) for handle in handles))
    assert (line.runs, codes(answers)) == ([4], [Code.OK] * 4)
    assert [each.receipt_handle for answer in answers for each in answer.entries] == handles
    assert left(desk)[0] == []


def test_an_ack_is_answered_when_durable_and_a_repeated_one_too() -> None:
    desk = desk_of()
    first, second, *_ = received(desk)
    line = line_of(desk)
    line.say(request(entry(first)).SerializeToString(), request(entry(second)).SerializeToString())
    line.say(request(entry(first)).SerializeToString(), request(entry(first)).SerializeToString())
    desk.desk.runner.end_pass()
    line.peer.moved(desk.desk.runner.passes.durable)
    assert (line.peer.answers, line.peer.owed, line.runs) == ({}, 4, [2, 2])
    line.settle()
    assert codes([line.answer(number) for number in (1, 3, 5, 7)]) == [Code.OK] * 4


@pytest.mark.parametrize("is_alone", [False, True])
def test_a_write_that_fails_refuses_them_all_and_they_stay_out(is_alone: bool) -> None:
    desk = desk_of()
    handles = received(desk)
    desk.desk.fail_writes("taken")
    line = line_of(desk, is_alone)
    answers = line.ask(*(request(entry(handle)) for handle in handles))
    assert codes(answers) == [Code.INTERNAL_SERVER_ERROR] * 4
    desk.desk.files.before = lambda operation, name: None
    assert left(desk)[0] == [b"0", b"2", b"4", b"6"]


@pytest.mark.parametrize("is_alone", [False, True])
def test_without_read_permission_each_call_is_refused(is_alone: bool) -> None:
    desk = desk_of()
    handles, others = received(desk), received(desk, topic="u")
    access = desk.desk.core.broker._access
    access.define_user("somebody", "secret")
    access.grant(Right("anonymous", DEFAULT_NAMESPACE, write=".*", read="^[ug]$"))
    desk.desk.runner.settle()
    line = line_of(desk, is_alone)
    answers = line.ask(request(entry(handles[0])), request(entry(others[0]), topic="u"), request(entry(handles[1])))
    assert codes(answers) == [Code.FORBIDDEN, Code.OK, Code.FORBIDDEN]


def test_clients_of_one_connection_are_kept_apart() -> None:
    desk = desk_of()
    raws = [request(entry(handle)).SerializeToString() for handle in received(desk)]
    line = line_of(desk)
    line.peer.say(line.frames(raws[0]) + line.frames(raws[1], x_mq_client_id="c2") + line.frames(raws[2]))
    line.settle()
    assert line.runs == [1, 1]
    assert codes([line.answer(number) for number in (1, 3, 5)]) == [Code.OK] * 3


def test_a_client_without_an_id_is_refused() -> None:
    line = line_of(desk_of())
    line.peer.say(line.frames(request(entry("zz")).SerializeToString(), x_mq_client_id=""))
    assert (line.runs, line.answer(1).status.code) == ([], Code.CLIENT_ID_REQUIRED)


def test_an_invalid_request_ends_its_call() -> None:
    line = line_of(desk_of())
    line.say(request(entry("zz")).SerializeToString(), b"\xff\xff")
    assert line.peer.answers[3].status == "3"


def test_a_cancelled_call_of_a_batch_is_not_answered_but_applied() -> None:
    desk = desk_of()
    line = line_of(desk)
    raws = [request(entry(handle)).SerializeToString() for handle in received(desk)]
    line.peer.say(b"".join(map(line.frames, raws)) + word(FrameType.RST_STREAM, 3, ErrorCode.CANCEL))
    line.settle()
    assert sorted(line.peer.answers) == [1, 5, 7]
    assert left(desk)[0] == []


def test_a_message_that_is_renewed_is_renewed_no_more_when_it_was_acknowledged() -> None:
    desk = desk_of()
    phone = desk.client()
    phone.consume("g", "t")
    handles = [handle_of(each) for each in phone.receive("t", auto_renew=True, invisible_ms=None)]
    renewals = desk.front_end._renewals
    assert len(renewals) == 4
    line_of(desk).ask(*(request(entry(handle)) for handle in handles[:3]))
    assert len(renewals) == 1


def test_a_call_with_a_repeated_and_a_new_ack_waits_for_the_later() -> None:
    desk = desk_of()
    first, second, *_ = received(desk)
    line, passes = line_of(desk), desk.desk.runner.passes
    raws = [request(entry(each)).SerializeToString() for each in (first, second)]
    line.say(raws[0])
    number = passes.current
    desk.desk.runner.end_pass()
    line.say(*raws)
    assert line.runs == [1, 2]
    line.peer.moved(number)
    assert sorted(line.peer.answers) == [1]


def test_an_older_receipt_in_a_batch_gets_the_write_error_too() -> None:
    desk = desk_of()
    first, *_ = received(desk)
    words = first.split(" ")
    words[1] = str(int(words[1]) - 1)
    line = line_of(desk)
    line.say(*(request(entry(each)).SerializeToString() for each in (first, " ".join(words))))
    desk.desk.fail_writes("taken")
    line.settle()
    right, older = codes([line.answer(number) for number in (1, 3)])
    assert right == older


@pytest.mark.parametrize("is_alone", [False, True])
def test_bytes_that_only_look_like_an_entry_are_ignored(is_alone: bool) -> None:
    """The bytes are the end of an unknown field."""

    def crafted(real: str, seeming: str) -> bytes:
        unknown = field(b"\x7a", field(b"\x1a", entry(seeming).SerializeToString()))
        return bytes(request(entry(real)).SerializeToString() + unknown)

    desk = desk_of(count=12)
    handles = received(desk, count=12)
    one, other = next((a, b) for a in handles for b in handles if a != b and len(a) == len(b))
    line = line_of(desk, is_alone)
    line.say(crafted(one, one))
    line.settle()
    (number,) = line.say(crafted(one, other))
    line.settle()
    assert line.answer(number).entries[0].receipt_handle == one
    assert len(left(desk)[0]) == 11


def test_a_topic_that_went_between_two_turns_is_not_found_by_the_next() -> None:
    desk = desk_of()
    first, second, *_ = received(desk)
    line = line_of(desk)
    assert codes(line.ask(request(entry(first)))) == [Code.OK]
    assert desk.desk.broker.ask(215, {"topic": "t"}).code == 0
    answers = line.ask(request(entry(second)))
    assert (line.runs, answers[0].status.code) == ([1, 1], Code.INTERNAL_SERVER_ERROR)


def test_the_cache_of_groups_is_bounded() -> None:
    desk = desk_of()
    line = line_of(desk)
    for number in range(300):
        line.say(request(entry("zz"), group=f"g{number}").SerializeToString())
    line.settle()
    run = line.peer.conversation._call_batches["AckMessage"]
    assert isinstance(run, AckBatcher)
    assert len(run._prefixes) <= 16
    assert set(codes([line.answer(2 * number + 1) for number in range(300)])) == {Code.INTERNAL_SERVER_ERROR}


def test_a_long_name_of_a_namespace_is_not_kept() -> None:
    desk = desk_of()
    line = line_of(desk)
    named = request(entry(received(desk)[0]))
    named.topic.resource_namespace = "n" * 600
    assert codes(line.ask(named)) == [Code.OK]
    assert line.runs == []


# -- random requests


HANDLES = ("out", "out", "out", "late", "changed", "returned", "of another group", "in order", "never given", "none")
NONE = ("zz", "", "é", "1 2 3", "x" * 3000, "0 1 1 0 0 broker-trimq 0 0 0 0 0")


def handles_of(desk: GrpcDesk) -> dict[str, list[str]]:
    """Receipts in every possible state."""
    phone = desk.client()
    returned = received(desk, count=1)
    desk.desk.advance(11 * SECOND)  # the lease expires and the message is revived
    again = received(desk, count=4)
    late = received(desk, "h", invisible_ms=10_000)
    in_order = received(desk, "o", count=2, invisible_ms=60_000)
    out = received(desk, "h", "u", invisible_ms=60_000)
    desk.desk.advance(5 * SECOND)
    changed = again[0]
    phone.change("t", changed, 20_000)
    forged = out[0].split(" ")
    forged[-2] = "77"
    return {
        "out": [*again, *out],
        "late": late,
        "changed": [changed],
        "returned": returned,
        "of another group": out,
        "in order": in_order,
        "never given": [" ".join(forged)],
        "none": [*NONE],
    }


@st.composite
def asked(draw: st.DrawFn) -> list[tuple[list[tuple[str, int, str, bool]], str, str]]:
    """Requests: most have one valid entry; some have unusual or invalid ones."""
    found = []
    for _ in range(draw(st.integers(1, 10))):
        ids = st.sampled_from(["M1", "M1", "M1", "", "é", "x" * 127, "x" * 128, "x" * 2100])
        entries = st.tuples(st.sampled_from(HANDLES), st.integers(0, 7), ids, st.just(False))
        lite = st.tuples(st.just("out"), st.integers(0, 7), st.just("M1"), st.just(True))
        count = draw(st.sampled_from([1, 1, 1, 1, 0, 2, 3]))
        chosen = draw(st.lists(st.one_of(entries, entries, entries, lite), min_size=count, max_size=count))
        group = draw(st.sampled_from(["g", "g", "h", "o", "nobody", "", "bad group$"]))
        topic = draw(st.sampled_from(["t", "t", "u", "none", "", "a b", "rmq_sys_x"]))
        found.append((chosen, group, topic))
    return found


@settings(max_examples=120, deadline=None)
@given(asked(), st.integers(0, 10), st.booleans())
def test_a_batch_is_applied_and_answered_as_single_calls_are(
    calls: list[tuple[list[tuple[str, int, str, bool]], str, str]], first: int, is_late: bool
) -> None:
    desks = desk_of(), desk_of()
    answers = []
    for desk, is_alone in zip(desks, (False, True), strict=True):
        handles = handles_of(desk)
        raws = [
            request(
                *(
                    entry(handles[kind][at % len(handles[kind])], id, **({"lite_topic": "l"} if is_lite else {}))
                    for kind, at, id, is_lite in chosen
                ),
                group=group,
                topic=topic,
            ).SerializeToString()
            for chosen, group, topic in calls
        ]
        line = line_of(desk, is_alone)
        if is_late:
            desk.desk.advance(6 * SECOND)
        line.say(*raws[:first])
        line.say(*raws[first:])  # in the same pass
        line.settle()
        line.say(*raws)  # all requests again
        line.settle()
        answers.append({number: each.data for number, each in line.peer.answers.items()})
    assert answers[0] == answers[1]
    assert left(desks[0]) == left(desks[1])


# -- encoding


TEXTS = st.one_of(st.text(max_size=200), st.text(st.characters(max_codepoint=127), max_size=140))


@given(TEXTS, TEXTS, st.binary(max_size=4), st.sampled_from([None, "", "l"]))
def test_an_entry_is_read_as_protobuf_reads_it_or_left_to_it(
    id: str, handle: str, before: bytes, lite_topic: str | None
) -> None:
    fields = {} if lite_topic is None else {"lite_topic": lite_topic}
    raw = request(entry(handle, id, **fields), group="", topic="").SerializeToString()
    resources = raw.index(b"\x1a")
    found = read_texts(before + raw[resources:], len(before), b"\x1a", b"\x0a", b"\x12")
    is_plain = all(0 < len(each) < 128 and each.isascii() for each in (id, handle)) and lite_topic is None
    assert found == ((entry(handle, id).SerializeToString(), id, handle) if is_plain else None)
    if found is not None:
        assert encode_ack_entry_response(found[0]) == encode_ack_response([(id, handle)])


@given(st.binary(max_size=40))
def test_any_bytes_are_an_entry_as_protobuf_sees_it_or_left_to_it(raw: bytes) -> None:
    found = read_texts(b"\x1a" + raw, 0, b"\x1a", b"\x0a", b"\x12")
    if found is not None:
        (read,) = wire.AckMessageRequest.FromString(b"\x1a" + raw).entries
        assert (read.message_id, read.receipt_handle, read.SerializeToString()) == (found[1], found[2], found[0])
