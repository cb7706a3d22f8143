"""Recording of front-end traffic."""

from __future__ import annotations

import pytest
from protocols.grpc.http2_peer import Http2Peer, call, word

from trimq.errors import ProtocolError
from trimq.protocols.contract import ConnectionDetails, DeferredReply, Parts, Reply, SessionControl
from trimq.protocols.grpc.frames import ErrorCode, FrameType
from trimq.protocols.kafka.messages.handshakes import ApiVersionsResponse
from trimq.protocols.kafka.messages.metadata import MetadataResponse, MetadataResponseTopic
from trimq.protocols.kafka.messages.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from trimq.protocols.kafka.messages.schema import ResponseMessage
from trimq.protocols.kafka.names.codes import Code
from trimq.protocols.kafka.wire.connection import Request, encode_response
from trimq.server.http.front_end import HttpRequest
from trimq.server.request_descriptions import describe
from trimq.server.traffic_recorder import RecordedRequest, _RecordedConversation


def produce_response(*codes: Code) -> ProduceResponse:
    partitions = [
        PartitionProduceResponse(index=index, error_code=code, error_message="why" if code else None)
        for index, code in enumerate(codes)
    ]
    return ProduceResponse(responses=[TopicProduceResponse(name="orders", partition_responses=partitions)])


def metadata_response(code: int) -> MetadataResponse:
    return MetadataResponse(topics=[MetadataResponseTopic(name="orders", error_code=code)])


@pytest.mark.parametrize(
    ("request_", "response", "text"),
    [
        (Request(0, 9, 7, "me"), produce_response(Code.NONE), "Produce v9 by me -> ok"),
        (
            Request(0, 9, 7, "me"),
            produce_response(Code.NONE, Code.MESSAGE_TOO_LARGE, Code.MESSAGE_TOO_LARGE),
            "Produce v9 by me -> orders MESSAGE_TOO_LARGE (why)",
        ),
        (Request(0, 7, 7, None), produce_response(Code.MESSAGE_TOO_LARGE), "Produce v7 -> orders MESSAGE_TOO_LARGE"),
        (Request(3, 8, 7, "me"), metadata_response(Code.INVALID_TOPIC), "Metadata v8 by me -> orders INVALID_TOPIC"),
        (Request(3, 12, 7, "me"), metadata_response(119), "Metadata v12 by me -> orders error 119"),
        (Request(18, 3, 7, "me"), ApiVersionsResponse(), "ApiVersions v3 by me -> ok"),
    ],
)
def test_a_kafka_request_is_described_with_its_error_codes(
    request_: Request, response: ResponseMessage, text: str
) -> None:
    recorded = RecordedRequest("kafka 127.0.0.1:1", describe(request_))
    assert str(recorded).endswith("-> no response")
    recorded.record_response(encode_response(request_, response))
    assert str(recorded) == f"kafka 127.0.0.1:1: {text}"


def test_a_call_is_described_by_its_method_and_outcome() -> None:
    peer = Http2Peer().greet()
    peer.say(call(1, b"x") + call(3, b"wait") + word(FrameType.RST_STREAM, 3, ErrorCode.CANCEL))
    recorded = [str(RecordedRequest("grpc", describe(event))) for event in peer.events]
    assert [each.partition(" -> ")[0] for each in recorded] == [
        *("grpc: Plain call", "grpc: Plain call", "grpc: Plain cancel")
    ]


def test_a_recorded_reply_is_the_reply_of_the_conversation_itself() -> None:
    given_up: list[int] = []
    inner = DeferredReply(None, lambda: given_up.append(1))
    _, conversation, seen = watched(inner)
    reply = conversation.handle("event")
    assert reply is inner
    assert reply.is_open
    inner.cancel()
    assert (reply.is_open, given_up) == (False, [1])
    assert reply.take() == ()
    assert str(seen[0]).endswith("response of 0 bytes")


def test_an_answer_in_another_version_is_described_by_its_size() -> None:
    request = Request(18, 99, 7, None)
    recorded = RecordedRequest("kafka", describe(request))
    recorded.record_response(encode_response(request, ApiVersionsResponse(error_code=35), version=0))
    assert str(recorded) == "kafka: ApiVersions v99 -> response of 14 bytes"


def test_a_long_answer_is_only_counted() -> None:
    recorded = RecordedRequest("kafka", describe(Request(1, 12, 7, None)))
    recorded.record_response([b"x" * 5000])
    assert str(recorded) == "kafka: Fetch v12 -> response of 5000 bytes"


@pytest.mark.parametrize(
    ("answer", "outcome"), [(b"HTTP/1.1 404 \r\n\r\n", "404"), (b"HTTP/1.1 200 OK\r\n\r\n", "200"), (b"", "?")]
)
def test_an_http_request_is_described_with_its_status(answer: bytes, outcome: str) -> None:
    recorded = RecordedRequest("http", describe(HttpRequest("GET", "/api/topics", {}, b"")))
    recorded.record_response([answer])
    assert str(recorded) == f"http: GET /api/topics -> {outcome}"


def test_a_request_without_a_description_is_described_by_its_type() -> None:
    recorded = RecordedRequest("amqp", describe(3.5))
    recorded.record_response([b"abc"])
    assert str(recorded) == "amqp: float -> response of 3 bytes"


# --- the conversation is not affected ---------------------------------------------------------------------------------


class Scripted:
    """A conversation that returns the given answer."""

    def __init__(self, answer: Reply | Exception | None) -> None:
        self._answer = answer
        self.is_closed = False

    def identify(self, principal: str) -> None: ...

    def get_buffer(self, size_hint: int) -> bytearray:
        return bytearray(size_hint)

    def buffer_updated(self, count: int) -> None: ...

    def next_event(self) -> object | None:
        return "event"

    def handle(self, event: object) -> Reply | None:
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer

    def release_memory(self) -> bool:
        return True

    def on_congestion_end(self) -> None: ...

    def closing_parts(self, error: ProtocolError) -> Parts:
        return [str(error).encode()]

    def describe(self) -> ConnectionDetails:
        return ConnectionDetails()

    def closed(self) -> None:
        self.is_closed = True


def watched(answer: Reply | Exception | None) -> tuple[Scripted, _RecordedConversation, list[object]]:
    seen: list[object] = []
    scripted = Scripted(answer)
    return scripted, _RecordedConversation("test", scripted, seen.append, lambda: seen.append("handled")), seen


def test_an_exception_passes_through_and_is_recorded() -> None:
    _, conversation, seen = watched(ProtocolError("bad bytes"))
    with pytest.raises(ProtocolError, match="bad bytes"):
        conversation.handle("event")
    assert [str(event) for event in seen] == ["test: str -> ProtocolError: bad bytes"]


def test_a_request_that_wants_no_answer_gets_none() -> None:
    _, conversation, seen = watched(None)
    assert conversation.handle("event") is None
    assert [str(event) for event in seen] == ["test: str -> no response expected", "handled"]


def test_the_end_and_the_closing_parts_are_the_conversations_own() -> None:
    scripted, conversation, seen = watched(None)
    assert conversation.closing_parts(ProtocolError("bye")) == [b"bye"]
    conversation.closed()
    assert scripted.is_closed
    assert seen == ["test: disconnected"]


def test_a_reply_keeps_its_lane_and_its_readiness() -> None:
    inner = Reply.when_durable(5, lambda: [b"done"], lane="lane")
    inner.count = 3
    _, conversation, seen = watched(inner)
    reply = conversation.handle("event")
    assert reply is not None
    assert (reply.lane, reply.count, reply.waits_for_pass) == ("lane", 3, True)
    assert (reply.number, reply.needs_sync) == (5, True)
    assert not reply.is_ready(9, 4)
    assert reply.is_ready(9, 5)
    assert reply.take() == [b"done"]
    assert str(seen[0]).endswith("response of 4 bytes")
    conversation.closed()
    assert str(seen[0]).endswith("response of 4 bytes")


def test_a_deferred_reply_is_described_with_its_result() -> None:
    inner = DeferredReply()
    _, conversation, seen = watched(inner)
    reply = conversation.handle("event")
    assert reply is not None
    assert not reply.is_ready(9, 9)
    inner.resolve([b"done"])
    assert reply.is_ready(0, 0)
    assert reply.take() == [b"done"]
    assert str(seen[0]).endswith("response of 4 bytes")


def test_a_request_without_a_reply_at_the_end_of_its_connection_is_described_as_such() -> None:
    _, conversation, seen = watched(DeferredReply())
    conversation.handle("event")
    assert str(seen[0]).endswith("-> no response")
    conversation.closed()
    assert str(seen[0]).endswith("not answered: the connection ended first")


def test_the_outlet_goes_to_the_conversation_itself() -> None:
    from trimq.server.traffic_recorder import _RecordedFrontEnd

    class FrontEnd:
        def open_conversation(self, address: str, outlet: SessionControl) -> Scripted:
            assert outlet is given
            return Scripted(None)

    given: SessionControl = object()  # type: ignore[assignment]
    seen: list[object] = []
    _RecordedFrontEnd("kafka", FrontEnd(), seen.append, lambda: None).open_conversation("1.2.3.4:5", given)
    assert seen == ["kafka 1.2.3.4:5: connected"]
