"""gRPC calls with random contents: each is answered with a status, or ended with one of gRPC's own; the broker
continues to work."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from google.protobuf.message_factory import GetMessageClass
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from protocols.rocketmq.grpc.grpc_desk import GrpcDesk, Phone, bodies_of, message

from trimq.protocols.rocketmq.grpc.front_end import METHODS
from trimq.protocols.rocketmq.grpc.wire import wire
from trimq.protocols.rocketmq.grpc.wire.codes import GrpcStatusError
from trimq.protocols.rocketmq.grpc.wire.enums import Code

NAMES = st.sampled_from(["t", "g", "fifo", "", "nowhere", "a b", "%RETRY%g_t", "rmq_sys_x"]) | st.text(max_size=8)
NUMBERS = st.sampled_from([-(2**31), -1, 0, 1, 2, 33, 2**31 - 1])
LONG_NUMBERS = st.sampled_from([-(2**63), -1, 0, 1, 1000, 2**63 - 1])
TEXTS = NAMES | st.sampled_from(["0 1700000000000 10000 0 0 broker-a 0 0 0", "9 9 9 9 1 b 9 9", "x\x01y\x02", "\x00"])


@cache
def requests_by_method() -> dict[str, st.SearchStrategy[Any]]:
    return {name: messages(method.request, 3) for name, method in METHODS.items()}


def messages(kind: Any, depth: int) -> st.SearchStrategy[Any]:
    """Any message of this kind, with its fields set or not."""
    fields = {
        field.name: st.none() | values(field, depth)
        for field in kind.DESCRIPTOR.fields
        if depth or field.message_type is None
    }
    return st.fixed_dictionaries(fields).map(lambda found: made(kind, found))


def made(kind: Any, found: dict[str, Any]) -> Any:
    given = {name: value for name, value in found.items() if value is not None}
    chosen: set[str] = set()
    for field in kind.DESCRIPTOR.fields:
        choice = field.containing_oneof
        if choice is not None and len(choice.fields) > 1 and field.name in given:
            if choice.name in chosen:
                del given[field.name]
            chosen.add(choice.name)
    return kind(**given)


def values(field: Any, depth: int) -> st.SearchStrategy[Any]:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        return st.dictionaries(TEXTS, TEXTS, max_size=2)
    one = value(field, depth)
    return st.lists(one, max_size=2) if field.is_repeated else one


def value(field: Any, depth: int) -> st.SearchStrategy[Any]:
    if field.message_type is not None:
        return messages(GetMessageClass(field.message_type), depth - 1)
    if field.enum_type is not None:
        return st.integers(0, 6)
    kinds: dict[int, Callable[[], st.SearchStrategy[Any]]] = {
        field.CPPTYPE_STRING: lambda: st.binary(max_size=8) if field.type == field.TYPE_BYTES else TEXTS,
        field.CPPTYPE_BOOL: st.booleans,
        field.CPPTYPE_INT32: lambda: NUMBERS,
        field.CPPTYPE_INT64: lambda: LONG_NUMBERS,
        field.CPPTYPE_FLOAT: lambda: st.floats(width=32),
    }
    return kinds[field.cpp_type]()


def opened() -> tuple[GrpcDesk, Phone]:
    desk = GrpcDesk(commit_file_bytes=1 << 20, index_keys=1000)
    desk.make_topic("t")
    desk.make_topic("fifo", "FIFO")
    desk.make_group("g")
    phone = desk.client()
    phone.consume("g", "t")
    return desk, phone


def check_answered(desk: GrpcDesk, phone: Phone, method: str, raw: bytes) -> None:
    try:
        reply = desk.front_end.call(method, phone.call_info(), raw)
    except GrpcStatusError:
        return
    if not desk.desk.is_ready(reply):
        assert reply.on_resolve_now is not None
        reply.on_resolve_now()
    first = phone.take(method, reply)[0]
    assert first.status.code in set(Code)


def check_works(phone: Phone) -> None:
    phone.consume("g", "t")  # the client may have terminated
    assert phone.send(message("t", b"still here")).status.code == Code.OK
    assert b"still here" in bodies_of(phone.receive("t", "another"))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.data())
def test_a_call_with_any_contents_is_answered(data: st.DataObject) -> None:
    desk, phone = opened()
    for _ in range(5):
        method = data.draw(st.sampled_from(sorted(METHODS)))
        check_answered(desk, phone, method, data.draw(requests_by_method()[method]).SerializeToString())
    check_works(phone)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(sorted(METHODS)), st.binary(max_size=60)), max_size=8))
def test_bytes_that_are_no_request_are_rejected_or_answered(calls: list[tuple[str, bytes]]) -> None:
    desk, phone = opened()
    for method, raw in calls:
        check_answered(desk, phone, method, raw)
    check_works(phone)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.binary(max_size=60) | messages(wire.TelemetryCommand, 3).map(lambda made: made.SerializeToString()))
def test_a_stream_with_any_contents_is_answered_or_ended(raw: bytes) -> None:
    desk, phone = opened()
    stream = desk.front_end.open("Telemetry", phone.call_info(), lambda parts: None)
    try:
        parts = stream.receive(raw)
    except GrpcStatusError:
        parts = []
    assert all(wire.TelemetryCommand.FromString(bytes(part)).status.code == Code.OK for part in parts)
    stream.closed()
    check_works(phone)
