"""HTTP/1.1 on the session loop: health, metrics and administration. The protocol is h11's; the routes are `api`'s."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

import h11

from trimq.core.broker import Broker
from trimq.errors import ProtocolError, Refusal
from trimq.metrics import Metrics, content_type
from trimq.model import Caller
from trimq.protocols.contract import Outlet, Parts, Reply
from trimq.server.api import Answer, Api, refusal_answer

_BUFFER_BYTES = 64 * 1024
_MAX_BODY_BYTES = 1024 * 1024


class HttpRequest(NamedTuple):
    method: str
    path: str
    query: dict[str, str]
    body: bytes


class HttpConversation:
    """One connection. Requests are answered in their order; a request that h11 cannot read closes it."""

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

    def get_buffer(self, size_hint: int) -> bytearray:
        return self._buffer

    def buffer_updated(self, count: int) -> None:
        self._http.receive_data(bytes(memoryview(self._buffer)[:count]))

    def next_event(self) -> HttpRequest | None:
        try:
            return self._next_request()
        except h11.RemoteProtocolError as error:
            raise ProtocolError(f"not HTTP/1.1: {error}") from None

    def _next_request(self) -> HttpRequest | None:
        while True:
            if self._http.our_state is h11.DONE and self._http.their_state is h11.DONE:
                self._http.start_next_cycle()
            event = self._http.next_event()
            if isinstance(event, h11.Request):
                self._head = event
                self._body = bytearray()
            elif isinstance(event, h11.Data):
                self._body += event.data
                if len(self._body) > _MAX_BODY_BYTES:
                    raise ProtocolError(f"a request body is longer than {_MAX_BODY_BYTES} bytes")
            elif isinstance(event, h11.EndOfMessage):
                return self._request()
            elif isinstance(event, h11.ConnectionClosed):
                self._outlet.close()
                return None
            else:  # NEED_DATA or PAUSED
                return None

    def _request(self) -> HttpRequest:
        assert self._head is not None
        target = urlsplit(self._head.target.decode("ascii", "replace"))
        query = {name: values[-1] for name, values in parse_qs(target.query).items()}
        return HttpRequest(self._head.method.decode("ascii"), unquote(target.path), query, bytes(self._body))

    def handle(self, event: object) -> Reply:
        assert isinstance(event, HttpRequest)
        try:
            answer = self._route(event)
        except Refusal as refusal:
            answer = refusal_answer(refusal)
        ticket = answer.ticket
        if ticket is None:
            return Reply.now(self._encode(event, answer))

        def build() -> Parts:
            refusal = ticket.refusal
            return self._encode(event, refusal_answer(refusal) if refusal is not None else answer)

        return Reply.when_durable(ticket.number, build)

    def _route(self, request: HttpRequest) -> Answer:
        if request.method in ("GET", "HEAD"):
            if request.path == "/healthz":
                return Answer.text(200, "ok\n")
            if request.path == "/readyz":
                return Answer.text(200, "ready\n") if self._is_ready() else Answer.text(503, "not ready\n")
            if request.path == "/metrics":
                return Answer(200, self._metrics.render(), content_type())
        return self._api.answer(self._caller, request.method, request.path, request.query, request.body)

    def _encode(self, request: HttpRequest, answer: Answer) -> Parts:
        headers = [("content-type", answer.content_type), ("content-length", str(len(answer.body)))]
        parts = [self._http.send(h11.Response(status_code=answer.status, headers=headers))]
        if request.method != "HEAD" and answer.body:
            parts.append(self._http.send(h11.Data(data=answer.body)))
        parts.append(self._http.send(h11.EndOfMessage()))
        if self._http.our_state is h11.MUST_CLOSE:
            self._outlet.close()
        return [part for part in parts if part]

    def congestion_ended(self) -> None:
        """Nothing is delivered that was not asked for."""

    def farewell(self, error: ProtocolError) -> Parts:
        if self._http.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            return []
        body = f"{error}\n".encode()
        headers = [("content-type", "text/plain"), ("content-length", str(len(body))), ("connection", "close")]
        try:
            parts = [
                self._http.send(h11.Response(status_code=400, headers=headers)),
                self._http.send(h11.Data(data=body)),
                self._http.send(h11.EndOfMessage()),
            ]
        except h11.LocalProtocolError:
            return []
        return [part for part in parts if part]

    def closed(self) -> None:
        """A connection holds nothing beyond its replies."""


class HttpFrontEnd:
    def __init__(self, broker: Broker, metrics: Metrics, is_ready: Callable[[], bool]) -> None:
        self._api = Api(broker)
        self._metrics = metrics
        self._is_ready = is_ready

    def converse(self, address: str, outlet: Outlet) -> HttpConversation:
        caller = Caller(principal="anonymous", client_id="", address=address, protocol="http")
        return HttpConversation(self._api, self._metrics, self._is_ready, caller, outlet)
