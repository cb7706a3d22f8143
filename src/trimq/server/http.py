"""HTTP/1.1 on the session loop: health, metrics and administration. The protocol is h11's; the routes are `api`'s."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import NamedTuple
from urllib.parse import parse_qs

import h11

from trimq.core.broker import Broker
from trimq.errors import ProtocolError, Refusal, Stopping
from trimq.metrics import Metrics, content_type
from trimq.model import Caller
from trimq.protocols.contract import Outlet, Parts, Reply
from trimq.server.api import Answer, Api, mistake_answer, not_allowed, refusal_answer

log = logging.getLogger(__name__)

_BUFFER_BYTES = 64 * 1024
_MAX_BODY_BYTES = 1024 * 1024

# What a peer may send before it has its answer: a body with the framing of its chunks, or requests in advance.
_MAX_UNANSWERED_BYTES = 4 * _MAX_BODY_BYTES
_MAX_QUERY_FIELDS = 100

_ERRORS = {413: "TooLarge", 431: "TooLarge", 501: "NotImplemented", 505: "NotImplemented"}


class HttpRequest(NamedTuple):
    """`path` is as it was sent, not yet decoded."""

    method: str
    path: str
    query: dict[str, str]
    body: bytes


class Unreadable(ProtocolError):
    """What came is no request that could be answered otherwise than with this status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class HttpConversation:
    """One connection. Requests are answered in their order; one that cannot be read is answered and closes it."""

    def __init__(
        self, api: Api, metrics: Metrics, is_ready: Callable[[], bool], caller: Caller, outlet: Outlet
    ) -> None:
        self._api = api
        self._metrics = metrics
        self._is_ready = is_ready
        self._caller = caller
        self._outlet = outlet
        self._buffer = bytearray(_BUFFER_BYTES)
        self._http = h11.Connection(h11.SERVER)
        self._head: h11.Request | None = None
        self._body = bytearray()
        self._unanswered_bytes = 0
        self._is_answering = False

    def get_buffer(self, size_hint: int) -> bytearray:
        return self._buffer

    def buffer_updated(self, count: int) -> None:
        self._unanswered_bytes += count
        self._http.receive_data(bytes(memoryview(self._buffer)[:count]))

    # -- requests

    def next_event(self) -> HttpRequest | None:
        if self._unanswered_bytes > _MAX_UNANSWERED_BYTES:
            raise Unreadable(413, "too much was sent before the answer")
        try:
            return self._next_request()
        except h11.RemoteProtocolError as error:
            raise Unreadable(error.error_status_hint, f"this is not HTTP/1.1: {error}") from None

    def _next_request(self) -> HttpRequest | None:
        while True:
            if self._http.our_state is h11.DONE and self._http.their_state is h11.DONE:
                self._http.start_next_cycle()
            event = self._http.next_event()
            if isinstance(event, h11.Request):
                self._begin(event)
            elif isinstance(event, h11.Data):
                self._body += event.data
                self._check_length(len(self._body))
            elif isinstance(event, h11.EndOfMessage):
                self._unanswered_bytes = len(self._http.trailing_data[0])
                return self._request()
            else:  # NEED_DATA or PAUSED
                return None

    def _begin(self, head: h11.Request) -> None:
        self._head = head
        self._body = bytearray()
        if not head.http_version.startswith(b"1."):
            raise Unreadable(505, f"HTTP/{head.http_version.decode()} is not served, only HTTP/1.1")
        for name, value in head.headers:
            if name == b"content-length":
                self._check_length(int(value))
        if self._http.they_are_waiting_for_100_continue:
            self._outlet.send([self._http.send(h11.InformationalResponse(status_code=100, headers=[]))])

    def _check_length(self, length: int) -> None:
        if length > _MAX_BODY_BYTES:
            raise Unreadable(413, f"a request body is longer than {_MAX_BODY_BYTES} bytes")

    def _request(self) -> HttpRequest:
        assert self._head is not None
        path, query = _split(self._head.target.decode("ascii"))
        try:
            fields = parse_qs(query, max_num_fields=_MAX_QUERY_FIELDS)
        except ValueError as error:
            raise Unreadable(400, f"the query cannot be read: {error}") from None
        last = {name: values[-1] for name, values in fields.items()}
        return HttpRequest(self._head.method.decode("ascii"), path, last, bytes(self._body))

    # -- answers

    def handle(self, event: object) -> Reply:
        assert isinstance(event, HttpRequest)
        self._is_answering = True
        answer = self._answer(event)
        ticket = answer.ticket
        if ticket is None:
            return Reply.now(self._encode(event, answer))

        def build() -> Parts:
            refusal = ticket.refusal
            return self._encode(event, refusal_answer(refusal) if refusal is not None else answer)

        return Reply.when_durable(ticket.number, build)

    def _answer(self, request: HttpRequest) -> Answer:
        try:
            return self._route(request)
        except Refusal as refusal:
            return refusal_answer(refusal)
        except Exception:
            log.exception("%s %s failed unexpectedly", request.method, request.path)
            return mistake_answer(500, "InternalError", "the broker failed; its log says more")

    def _route(self, request: HttpRequest) -> Answer:
        method = "GET" if request.method == "HEAD" else request.method
        if request.path in ("/healthz", "/readyz", "/metrics") and method != "GET":
            return not_allowed(method, "GET, HEAD")
        if request.path == "/healthz":
            return Answer.text(200, "ok\n")
        if request.path == "/readyz":
            return Answer.text(200, "ready\n") if self._is_ready() else Answer.text(503, "not ready\n")
        if request.path == "/metrics":
            return Answer(200, self._metrics.render(), content_type())
        return self._api.answer(self._caller, method, request.path, request.query, request.body)

    def _encode(self, request: HttpRequest, answer: Answer) -> Parts:
        self._is_answering = False
        parts = self._write(answer, has_body=request.method != "HEAD")
        self._head = None
        if self._http.our_state is h11.MUST_CLOSE:
            self._outlet.close()
        return parts

    def _write(self, answer: Answer, has_body: bool = True, closes: bool = False) -> Parts:
        headers = []
        if answer.status != 204:  # which has no body, and so no length of it
            headers = [("content-type", answer.content_type), ("content-length", str(len(answer.body)))]
        if answer.allow:
            headers.append(("allow", answer.allow))
        if closes:
            headers.append(("connection", "close"))
        parts = [self._http.send(h11.Response(status_code=answer.status, headers=headers))]
        if has_body and answer.body:
            parts.append(self._http.send(h11.Data(data=answer.body)))
        parts.append(self._http.send(h11.EndOfMessage()))
        return [part for part in parts if part]

    def rest(self) -> bool:
        """What it receives into is small."""
        return True

    def congestion_ended(self) -> None:
        """Nothing is delivered that was not asked for."""

    def farewell(self, error: ProtocolError) -> Parts:
        if isinstance(error, Stopping):
            return ()  # nobody asked
        if self._is_answering or self._http.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            return ()  # it would come before the answer that is due
        status = error.status if isinstance(error, Unreadable) else 400
        has_body = self._head is None or self._head.method != b"HEAD"
        answer = mistake_answer(status, _ERRORS.get(status, "BadRequest"), str(error))
        return self._write(answer, has_body=has_body, closes=True)

    def closed(self) -> None:
        """A connection holds nothing beyond its replies."""


def _split(target: str) -> tuple[str, str]:
    """The path and the query of a request's target. Clients of proxies put scheme and host before it."""
    for scheme in ("http://", "https://"):
        if target.lower().startswith(scheme):
            target = "/" + target[len(scheme) :].partition("/")[2]
    path, _, query = target.partition("#")[0].partition("?")
    return path, query


class HttpFrontEnd:
    def __init__(self, broker: Broker, metrics: Metrics, is_ready: Callable[[], bool]) -> None:
        self._api = Api(broker)
        self._metrics = metrics
        self._is_ready = is_ready

    def converse(self, address: str, outlet: Outlet) -> HttpConversation:
        caller = Caller(principal="anonymous", client_id="", address=address, protocol="http")
        return HttpConversation(self._api, self._metrics, self._is_ready, caller, outlet)
