"""The HTTP port, byte by byte."""

from __future__ import annotations

import base64
import json
import socket
from collections.abc import Iterator
from errno import EMFILE
from typing import Any, NamedTuple

import h11
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trimq.server.http.front_end import BadHttpRequest, HttpConversation
from trimq.server.http.records import _RecordRead
from trimq.server.http.topics import TopicsApi
from trimq.testing import Broker, BrokerFailed

PATIENCE_S = 20
MIB = 1024 * 1024


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        broker.create_topic("orders", partitions=2, retention_ms=60_000)
        broker.send("orders", "one")
        yield broker


class Response(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        assert self.headers["content-type"] == "application/json"
        return json.loads(self.body)


def connect(broker: Broker) -> socket.socket:
    host, _, port = broker.addresses["http"].rpartition(":")
    return socket.create_connection((host, int(port)), PATIENCE_S)


def receive_all(client: socket.socket) -> bytes:
    received = bytearray()
    while piece := client.recv(65536):
        received += piece
    return bytes(received)


def parse(received: bytes, methods: list[str]) -> list[Response]:
    """Parses the responses to requests with these methods, and asserts that nothing follows."""
    responses = []
    for method in methods:
        reader = h11.Connection(h11.CLIENT)
        reader.send(h11.Request(method=method, target="/", headers=[("host", "x")]))
        reader.send(h11.EndOfMessage())
        reader.receive_data(received)
        head, body = None, b""
        while not isinstance(event := reader.next_event(), h11.EndOfMessage):
            assert event not in (h11.NEED_DATA, h11.PAUSED), f"cut off: {received!r}"
            if isinstance(event, h11.Response):
                head = event
            elif isinstance(event, h11.Data):
                body += event.data
        assert head is not None
        headers = {name.decode(): value.decode() for name, value in head.headers}
        responses.append(Response(head.status_code, headers, body))
        received = reader.trailing_data[0]
    assert received == b"", f"bytes after the last response: {received!r}"
    return responses


def talk(broker: Broker, sent: bytes, *methods: str) -> list[Response]:
    """Sends these bytes, closes the sending side, and reads until the broker closes."""
    with connect(broker) as client:
        client.sendall(sent)
        client.shutdown(socket.SHUT_WR)
        return parse(receive_all(client), list(methods))


def request(method: str, target: str, body: bytes | None = None, *headers: str) -> bytes:
    length = [] if body is None else [f"Content-Length: {len(body)}"]
    lines = [f"{method} {target} HTTP/1.1", "Host: localhost", *headers, *length]
    return "\r\n".join([*lines, "", ""]).encode() + (body or b"")


def ask(broker: Broker, method: str, target: str, body: bytes | None = None, *headers: str) -> Response:
    return talk(broker, request(method, target, body, *headers), method)[0]


# --- health and metrics -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("path", "text"), [("/healthz", b"ok\n"), ("/readyz", b"ready\n")])
def test_a_broker_that_serves_is_healthy_and_ready(broker: Broker, path: str, text: bytes) -> None:
    response = ask(broker, "GET", path)
    assert (response.status, response.body) == (200, text)
    assert response.headers["content-type"].startswith("text/plain")


def test_a_broker_with_a_full_disk_is_ready_and_reports_refused_writes() -> None:
    with Broker(storage_low_water_bytes=1 << 60) as full:
        response = ask(full, "GET", "/readyz")
    assert response.status == 200
    assert response.body.startswith(b"ready, but writes are refused: ")


def test_a_broker_that_is_draining_is_healthy_but_not_ready(broker: Broker) -> None:
    broker.on_loop(lambda node: setattr(node, "is_ready", False))
    try:
        assert ask(broker, "GET", "/healthz").status == 200
        assert ask(broker, "GET", "/readyz")[::2] == (503, b"not ready\n")
    finally:
        broker.on_loop(lambda node: setattr(node, "is_ready", True))


def metrics_of(broker: Broker) -> dict[str, float]:
    response = ask(broker, "GET", "/metrics")
    assert response.status == 200
    assert response.headers["content-type"].startswith("text/plain; version=")
    lines = [line for line in response.body.decode().splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


def test_metrics_have_the_values_that_operators_need() -> None:
    with Broker() as broker:
        broker.create_topic("orders", partitions=2)
        broker.send("orders", "one")
        assert ask(broker, "GET", "/healthz").status == 200  # a request counts when it has been answered
        found = metrics_of(broker)
    assert found["trimq_topics"] == 1
    assert found["trimq_streams"] == 2
    assert found["trimq_stored_bytes"] > 0
    assert found["trimq_appended_batches_total"] == 1
    assert found["trimq_passes_written"] >= found["trimq_passes_durable"] > 0
    assert found["trimq_sync_seconds_count"] > 0
    assert found['trimq_sync_seconds_bucket{le="+Inf"}'] == found["trimq_sync_seconds_count"]
    assert found['trimq_connections{listener="http"}'] in (1, 2)  # the first may still be closing
    assert found['trimq_connections{listener="kafka"}'] == 0
    assert found['trimq_refused_connections_total{listener="kafka"}'] == 0
    assert found['trimq_requests_total{listener="http"}'] >= 1
    assert found['trimq_waiting_reads{protocol="kafka"}'] == 0
    assert found['trimq_held_reads_total{protocol="kafka"}'] == 0
    assert found["trimq_disk_free_bytes"] > 0


def test_every_metric_has_a_help(broker: Broker) -> None:
    text = ask(broker, "GET", "/metrics").body.decode()
    helped = {line.split()[2] for line in text.splitlines() if line.startswith("# HELP") and len(line.split()) > 3}
    typed = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")}
    assert typed
    assert typed == helped


# --- the protocol -----------------------------------------------------------------------------------------------------


def test_a_connection_is_kept_for_further_requests(broker: Broker) -> None:
    with connect(broker) as client:
        for _ in range(3):
            client.sendall(request("GET", "/healthz"))
            assert client.recv(4096).endswith(b"ok\n")


@pytest.mark.parametrize(
    "sent",
    [
        request("GET", "/healthz", None, "Connection: close"),
        b"GET /healthz HTTP/1.0\r\n\r\n",
        b"GET /healthz HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
    ],
)
def test_a_client_that_asks_for_one_answer_gets_it_and_the_end(broker: Broker, sent: bytes) -> None:
    with connect(broker) as client:
        client.sendall(sent)
        (response,) = parse(receive_all(client), ["GET"])
    assert response.status == 200


def test_head_answers_like_get_without_the_body(broker: Broker) -> None:
    for target in ("/healthz", "/metrics", "/api/topics", "/api/topics/orders", "/api/topics/none"):
        get, head = ask(broker, "GET", target), ask(broker, "HEAD", target)
        assert (head.status, head.body) == (get.status, b"")
        if target != "/metrics":  # its values change
            assert head.headers == get.headers


def test_requests_that_come_together_are_answered_in_order(broker: Broker) -> None:
    new = json.dumps({"name": "pipelined"}).encode()
    sent = [
        request("POST", "/api/topics", new),
        request("GET", "/api/topics/pipelined"),
        request("HEAD", "/healthz"),
        request("GET", "/nothing"),
        request("DELETE", "/api/topics/pipelined"),
        request("GET", "/api/topics/pipelined"),
    ]
    responses = talk(broker, b"".join(sent), "POST", "GET", "HEAD", "GET", "DELETE", "GET")
    assert [response.status for response in responses] == [201, 200, 200, 404, 204, 404]


@pytest.mark.parametrize("streams", [1, 100])
def test_requests_that_come_while_an_answer_waits_for_the_disk_are_answered_after_it(streams: int) -> None:
    """The client does not close its side. A topic with many streams is created over several turns."""
    topics = [json.dumps({"name": name, "streams": streams}).encode() for name in ("one", "two")]
    sent = [request("POST", "/api/topics", body) for body in topics]
    last = request("GET", "/healthz", None, "Connection: close")
    with Broker() as broker, connect(broker) as client:
        client.sendall(b"".join(sent) + last)
        found = parse(receive_all(client), ["POST", "POST", "GET"])
        assert [response.status for response in found] == [201, 201, 200]


def test_a_request_cut_anywhere_is_the_same_request(broker: Broker) -> None:
    sent = request("GET", "/healthz") + request("POST", "/api/topics", b"{}") + request("GET", "/readyz")
    whole = talk(broker, sent, "GET", "POST", "GET")
    assert [response.status for response in whole] == [200, 400, 200]

    @settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
    @given(st.lists(st.integers(0, len(sent)), max_size=8))
    def check(cuts: list[int]) -> None:
        conversation, outlet = open_conversation(broker)
        received = bytearray()
        for start, end in zip([0, *sorted(cuts)], [*sorted(cuts), len(sent)], strict=True):
            received += feed(broker, conversation, sent[start:end])
        assert parse(bytes(received), ["GET", "POST", "GET"]) == whole
        assert outlet.is_open

    check()


class Ending:
    """An outlet that records the calls to it."""

    def __init__(self) -> None:
        self.is_open = True
        self.is_held = False
        self.sent = bytearray()
        self.is_congested = False

    def send(self, parts: Any) -> None:
        for part in parts:
            self.sent += part

    def throttle_reading(self, milliseconds: int) -> None:
        raise AssertionError

    def hold_reading(self) -> None:
        self.is_held = True

    def release_reading(self) -> None:
        self.is_held = False

    def close(self) -> None:
        self.is_open = False


def open_conversation(broker: Broker) -> tuple[HttpConversation, Ending]:
    outlet = Ending()

    def make(node: Any) -> HttpConversation:
        from trimq.model import SYSTEM

        return HttpConversation(
            TopicsApi(node.core.broker),
            node.core.authenticator,
            node.core.login_log,
            node.metrics,
            lambda: True,
            SYSTEM,
            outlet,
        )

    return broker.on_loop(make), outlet


def feed(broker: Broker, conversation: HttpConversation, data: bytes) -> bytes:
    """Returns the answers that are ready. Raises ProtocolError if the bytes are not a valid request."""

    def take(node: Any) -> bytes:
        answers = bytearray()
        left = data
        while left:
            buffer = conversation.get_buffer(-1)
            count = min(len(buffer), len(left))
            buffer[:count] = left[:count]
            conversation.buffer_updated(count)
            left = left[count:]
        while (event := conversation.next_event()) is not None:
            reply = conversation.handle(event)
            if reply.is_ready(1 << 60, 1 << 60):
                answers += b"".join(reply.take())
        return bytes(answers)

    return broker.on_loop(take)


@pytest.mark.parametrize(
    ("sent", "status", "error"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", 400, "BadRequest"),
        (b"GET\r\n\r\n", 400, "BadRequest"),
        (b"GET /healthz HTTP/1.1\r\n\r\n", 400, "BadRequest"),  # no Host header
        (b"GET /healthz HTTP/2.0\r\nHost: x\r\n\r\n", 505, "NotImplemented"),
        (b"GET / HTTP/1.1\r\nHost: x\r\nbad header\r\n\r\n", 400, "BadRequest"),
        (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: x\r\n\r\n", 400, "BadRequest"),
        (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n", 400, "BadRequest"),
        (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 400, "BadRequest"),
        (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 400, "BadRequest"),
        (b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n", 501, "NotImplemented"),
        (b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400, "BadRequest"),
        (b"GET / HTTP/1.1\r\nHost: x\r\nA: " + b"a" * 100_000 + b"\r\n\r\n", 431, "TooLarge"),
        (b"GET /?" + b"&".join([b"a=1"] * 200) + b" HTTP/1.1\r\nHost: x\r\n\r\n", 400, "BadRequest"),
        (request("POST", "/api/topics", b"x" * (MIB + 1)), 413, "TooLarge"),
        (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n", 413, "TooLarge"),
    ],
)
def test_an_invalid_request_is_answered_and_ends_the_connection(
    broker: Broker, sent: bytes, status: int, error: str
) -> None:
    before, after = request("GET", "/healthz"), request("GET", "/never")
    with connect(broker) as client:
        client.sendall(before + sent + after)
        first, last = parse(receive_all(client), ["GET", "GET"])
    assert first.status == 200
    assert (last.status, last.json["error"]) == (status, error)
    assert last.json["message"]
    assert last.headers["connection"] == "close"


def test_a_long_body_is_refused_before_it_is_sent_if_the_client_asks(broker: Broker) -> None:
    with connect(broker) as client:
        client.sendall(f"POST /api/topics HTTP/1.1\r\nHost: x\r\nContent-Length: {50 * MIB}\r\n".encode())
        client.sendall(b"Expect: 100-continue\r\n\r\n")
        (response,) = parse(receive_all(client), ["POST"])
    assert response.status == 413


def test_a_client_that_sends_a_long_body_all_the_same_gets_the_refusal(broker: Broker) -> None:
    with connect(broker) as client:
        client.sendall(f"POST /api/topics HTTP/1.1\r\nHost: localhost\r\nContent-Length: {20 * MIB}\r\n\r\n".encode())
        client.sendall(b"x" * (20 * MIB))
        (response,) = parse(receive_all(client), ["POST"])
    assert response.status == 413


def test_a_client_that_waits_for_leave_to_send_its_body_gets_it(broker: Broker) -> None:
    body = b'{"name": "a b"}'
    with connect(broker) as client:
        client.sendall(f"POST /api/topics HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n".encode())
        client.sendall(b"Expect: 100-continue\r\n\r\n")
        assert client.recv(4096).startswith(b"HTTP/1.1 100 ")
        client.sendall(body)
        client.shutdown(socket.SHUT_WR)
        (response,) = parse(receive_all(client), ["POST"])
    assert (response.status, response.json["error"]) == (400, "InvalidName")


@pytest.mark.parametrize("size", [1, 3, 100_000])
def test_a_body_may_come_in_chunks(broker: Broker, size: int) -> None:
    body = json.dumps({"name": f"chunked-{size}", "settings": {}}).encode()
    chunks = [body[at : at + size] for at in range(0, len(body), size)]
    sent = b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n\r\n"
    (response,) = talk(broker, request("POST", "/api/topics", None, "Transfer-Encoding: chunked") + sent, "POST")
    assert response.status == 201
    assert ask(broker, "DELETE", f"/api/topics/chunked-{size}").status == 204


def test_chunks_that_never_end_are_refused(broker: Broker) -> None:
    chunk = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
    sent = request("POST", "/api/topics", None, "Transfer-Encoding: chunked") + chunk * 40
    with connect(broker) as client:
        client.sendall(sent)
        (response,) = parse(receive_all(client), ["POST"])
    assert response.status == 413


def test_pipelined_requests_are_bounded(broker: Broker) -> None:
    """The first request waits for the disk while the peer keeps sending."""
    conversation, _ = open_conversation(broker)
    assert feed(broker, conversation, request("DELETE", "/api/topics/none"))  # the conversation works
    held = request("POST", "/api/topics", b'{"name":"held"}')

    def hold(node: Any) -> None:
        conversation.buffer_updated(put(conversation, held))
        event = conversation.next_event()
        assert event is not None
        reply = conversation.handle(event)
        assert not reply.is_ready(0, 0)
        with pytest.raises(BadHttpRequest, match="too many bytes were sent") as caught:
            send_ahead(conversation)
        assert conversation.closing_parts(caught.value) == ()

    broker.on_loop(hold)
    assert ask(broker, "DELETE", "/api/topics/held").status == 204


def send_ahead(conversation: HttpConversation) -> None:
    for _ in range(1000):
        conversation.buffer_updated(put(conversation, request("GET", "/healthz") * 500))
        assert conversation.next_event() is None


def put(conversation: HttpConversation, data: bytes) -> int:
    conversation.get_buffer(-1)[: len(data)] = data
    return len(data)


# --- routes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "target", ["/", "/api", "/api/", "/api/topics/", "/api/topics/a/b", "/metrics/", "/healthz/x", "//api/topics", "*"]
)
def test_there_is_nothing_elsewhere(broker: Broker, target: str) -> None:
    response = ask(broker, "GET", target)
    assert response.status == 404
    assert set(response.json) == {"error", "message"}


@pytest.mark.parametrize(
    ("method", "target", "allow"),
    [
        ("POST", "/healthz", "GET, HEAD"),
        ("DELETE", "/metrics", "GET, HEAD"),
        ("PUT", "/api/topics", "GET, HEAD, POST"),
        ("DELETE", "/api/topics", "GET, HEAD, POST"),
        ("POST", "/api/topics/orders", "GET, HEAD, PATCH, DELETE"),
        ("PUT", "/api/groups", "GET, HEAD, POST"),
        ("POST", "/api/groups/billing", "GET, HEAD, DELETE"),
        ("OPTIONS", "/api/topics", "GET, HEAD, POST"),
        ("BREW", "/api/topics", "GET, HEAD, POST"),
    ],
)
def test_another_method_is_refused_with_those_that_are_served(
    broker: Broker, method: str, target: str, allow: str
) -> None:
    response = ask(broker, method, target)
    assert (response.status, response.json["error"]) == (405, "MethodNotAllowed")
    assert response.headers["allow"] == allow


@pytest.mark.parametrize("target", ["http://x/healthz", "HTTP://x:80/healthz?a=1", "/healthz?x=y#z", "/healthz?"])
def test_a_target_may_name_a_host_and_have_a_query(broker: Broker, target: str) -> None:
    assert ask(broker, "GET", target).status == 200


@pytest.mark.parametrize("ends", [False, True])
@pytest.mark.parametrize("headers", [(), ("Connection: close",)])
def test_an_answer_that_takes_its_time_comes_before_its_connection_ends(ends: bool, headers: tuple[str, ...]) -> None:
    """Passwords are hashed off the loop, when a user is defined and at login."""
    user = json.dumps({"password": "secret", "administrator": True}).encode()
    login = f"Authorization: Basic {base64.b64encode(b'root:secret').decode()}"
    with Broker() as broker:
        for asked, status in (
            (request("PUT", "/api/users/root", user, *headers), b"200"),
            (request("GET", "/api/users", None, login, *headers), b"200"),
        ):
            with connect(broker) as client:
                client.sendall(asked)
                if ends:
                    client.shutdown(socket.SHUT_WR)
                assert client.recv(12) == b"HTTP/1.1 " + status


def test_a_bug_is_answered_and_the_connection_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("planted")

    monkeypatch.setattr(TopicsApi, "answer", fail)
    broker = Broker().start()
    first, second = talk(broker, request("GET", "/api/topics") + request("GET", "/healthz"), "GET", "GET")
    with pytest.raises(BrokerFailed, match="planted"):
        broker.close()
    assert (first.status, first.json["error"]) == (500, "InternalError")
    assert "planted" not in first.body.decode()
    assert second.status == 200


@pytest.mark.parametrize("ends", [False, True])
@pytest.mark.parametrize("is_known", [False, True])
def test_a_bug_after_a_login_is_answered(monkeypatch: pytest.MonkeyPatch, ends: bool, is_known: bool) -> None:
    """A known password is compared at once, another one off the loop."""
    user = json.dumps({"password": "secret", "administrator": True}).encode()
    login = f"Authorization: Basic {base64.b64encode(b'root:secret').decode()}"
    broker = Broker().start()
    broker.create_topic("orders", partitions=1)
    assert ask(broker, "PUT", "/api/users/root", user).status == 200
    if is_known:
        assert ask(broker, "GET", "/api/users", None, login).status == 200

    def fail(*_: object) -> None:
        raise OSError(EMFILE, "planted")

    monkeypatch.setattr(_RecordRead, "_respond", fail)
    with connect(broker) as client:
        client.sendall(request("GET", "/log/orders/0", None, login))
        if ends:
            client.shutdown(socket.SHUT_WR)
        assert client.recv(12) == b"HTTP/1.1 500"
    with pytest.raises(BrokerFailed, match="planted"):
        broker.close()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(st.binary(max_size=300) | st.text("GETPOS/ api:\r\n1.HTP%", max_size=200).map(str.encode))
def test_any_bytes_get_an_answer_or_the_end(broker: Broker, data: bytes) -> None:
    with connect(broker) as client:
        client.sendall(data)
        client.shutdown(socket.SHUT_WR)
        received = receive_all(client)
    assert received == b"" or received.startswith(b"HTTP/1.1 ")
    assert ask(broker, "GET", "/healthz").status == 200
