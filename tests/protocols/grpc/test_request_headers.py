"""Request headers of calls: each is read independently of those before it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from trimq.protocols.grpc.hpack import Field, HeaderBlock
from trimq.protocols.grpc.request_headers import CallHeaderReader, GrpcMethod, NotGrpc, NotHttp
from trimq.protocols.grpc.statuses import CallRejected

METHODS = {"/s/Send": GrpcMethod("Send", False), "/s/Talk": GrpcMethod("Talk", True)}
HEEDED = frozenset(("x-mq-request-id", "trace-bin", "x"))
CALL: list[Field] = [
    (":method", "POST"),
    (":scheme", "http"),
    (":path", "/s/Send"),
    ("te", "trailers"),
    ("content-type", "application/grpc"),
    ("grpc-timeout", "30S"),
    ("x-mq-request-id", "one"),
]
OTHERS: list[Field] = [
    (":path", "/s/Talk"),
    (":path", "/s/None"),
    (":method", "GET"),
    (":authority", "here"),
    ("te", "gzip"),
    ("content-type", "text/html"),
    ("content-type", "application/grpc+proto"),
    ("grpc-encoding", "gzip"),
    ("grpc-encoding", "lzma"),
    ("grpc-timeout", "2999u"),
    ("grpc-timeout", "soon"),
    ("x-mq-request-id", "two"),
    ("x-mq-request-id", "t\nwo"),
    ("X-Capital", "one"),
    ("trace-bin", "one"),
    ("trace-bin", "two"),
    ("connection", "close"),
]


def read_by(reader: CallHeaderReader, fields: list[Field]) -> object:
    try:
        head = reader.read(HeaderBlock(tuple(fields), False))
    except (NotHttp, NotGrpc, CallRejected) as error:
        return type(error), str(error)
    call_info = head.call_info
    return head.method, head.is_compressed, call_info.address, dict(call_info.metadata), call_info.remaining_ms


def reader() -> CallHeaderReader:
    return CallHeaderReader(METHODS, "127.0.0.1:1", 1000, HEEDED)


@st.composite
def calls(draw: st.DrawFn) -> list[Field]:
    """Calls with mostly the same headers: some values differ, some fields are added or omitted."""
    fields = list(CALL)
    for name, value in draw(st.lists(st.sampled_from(OTHERS), max_size=3)):
        places = [place for place, field in enumerate(fields) if field[0] == name]
        if places and draw(st.booleans()):
            fields[places[0]] = (name, value)
        else:
            fields.insert(draw(st.sampled_from([0, len(fields)])), (name, value))
    if draw(st.integers(0, 5)) == 0:
        del fields[draw(st.integers(0, len(fields) - 1))]
    return fields


@given(st.lists(calls(), min_size=1, max_size=6))
def test_headers_are_read_independently_of_those_before(blocks: list[list[Field]]) -> None:
    one = reader()
    for fields in blocks:
        assert read_by(one, fields) == read_by(reader(), fields)


def test_calls_that_differ_in_id_and_timeout_have_their_own_values() -> None:
    one = reader()
    for number in range(3):
        fields = [*CALL[:-2], ("grpc-timeout", f"{number}S"), ("x-mq-request-id", f"id {number}")]
        head = one.read(HeaderBlock(tuple(fields), False))
        assert (head.call_info.remaining_ms, head.call_info.metadata["x-mq-request-id"]) == (
            number * 1000,
            f"id {number}",
        )


def test_calls_that_differ_in_ignored_headers_share_their_metadata() -> None:
    one = reader()
    ids = (
        [(":authority", "here"), ("trace", "1"), ("x-time", "1")],
        [(":authority", "here"), ("trace", "2"), ("x-time", "2")],
    )
    first, second = (one.read(HeaderBlock((*CALL[:3], more[0], *CALL[3:], *more[1:]), False)) for more in ids)
    assert first.call_info is second.call_info
    assert first.call_info.metadata == {"x-mq-request-id": "one"}
    heads = [
        one.read(HeaderBlock((*CALL[:-2], ("grpc-timeout", f"{wait}u"), CALL[-1]), False)) for wait in (2999, 2001)
    ]
    assert heads[0].call_info is heads[1].call_info
    assert heads[0].call_info.remaining_ms == 2


def test_the_cache_of_timeouts_is_bounded() -> None:
    one = reader()
    for wait in range(500):
        head = one.read(HeaderBlock((*CALL[:-2], ("grpc-timeout", f"{wait}m"), CALL[-1]), False))
        assert head.call_info.remaining_ms == wait
    assert all(len(known.by_time) <= 16 for known in one._known.values())


def test_long_headers_are_not_cached() -> None:
    one = reader()
    one.read(HeaderBlock(tuple(CALL), False, 5000))
    assert not one._known


def test_missing_and_repeated_headers_are_read_correctly_each_time() -> None:
    for repeated in [("trace-bin", "one"), ("trace-bin", "two")], [("x", "1"), ("x", "2")], [("x", "1"), ("x", "3")]:
        one = reader()
        for last in (repeated[0], repeated[1], ("x", "4")):
            fields = [*CALL, repeated[0], last] if last[0] == "x" else [*CALL, last]
            assert read_by(one, fields) == read_by(reader(), fields)


def test_a_repeated_timeout_is_not_taken_for_the_one_before() -> None:
    one = reader()
    for wait in (1, 2, 1):
        head = one.read(HeaderBlock((*CALL[:-2], ("grpc-timeout", f"{wait}S"), CALL[-1]), False))
        assert head.call_info.remaining_ms == wait * 1000


def test_long_headers_do_not_evict_short_ones() -> None:
    one = reader()
    one.read(HeaderBlock((*CALL, ("y", "short")), False))
    one.read(HeaderBlock((*CALL, ("y", "x" * 900)), False, 900))
    (known,) = one._known.values()
    assert all(len(value) < 100 for _, value in known.fields)
