"""HTTP/1.1 front-end: health, metrics and administration. `h11` implements the protocol; `topics` and its siblings the
routes."""

from __future__ import annotations

import base64
import dataclasses
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import NamedTuple, cast
from urllib.parse import parse_qs

import h11
import msgspec

from trimq.clock import LoopTime, Timeline
from trimq.core.api.broker import Broker
from trimq.core.api.commit_log_group_admin import CommitLogGroupAdmin
from trimq.core.api.records import RecordsApi
from trimq.core.security.authentication import Authenticator
from trimq.core.security.login_delays import source_of
from trimq.core.security.login_log import LoginLog
from trimq.errors import ProtocolError, Stopping
from trimq.metrics import CONTENT_TYPE, Metrics
from trimq.model import ANONYMOUS, Buffer, Caller
from trimq.protocols.contract import ConnectionDetails, DeferredReply, Parts, Reply, SessionControl
from trimq.server.http.acls import AclsApi
from trimq.server.http.browser_sessions import PAGE_HEADER, clear_cookie, read_token, set_cookie
from trimq.server.http.commit_log_topics import CommitLogTopicsApi
from trimq.server.http.console import Console, LoginForm, open_console, without_numbers
from trimq.server.http.cross_origin import KnownHosts, is_cross_origin, known_hosts
from trimq.server.http.definitions import DefinitionsApi
from trimq.server.http.event_streams import EVENT_STREAM
from trimq.server.http.groups import GroupsApi
from trimq.server.http.messages import MessagesApi
from trimq.server.http.overview import OverviewApi
from trimq.server.http.producers import ProducersApi
from trimq.server.http.queues import QueuesApi
from trimq.server.http.records import StreamsApi
from trimq.server.http.responses import (
    JSON,
    DeferredResponse,
    HttpResponse,
    bad_request,
    compressed,
    error_response,
    guarded,
    not_allowed,
    refusal_response,
)
from trimq.server.http.slices import BodyBuilder, SliceRunner, Steps
from trimq.server.http.topics import OtherApi, TopicsApi
from trimq.server.http.users import UsersApi
from trimq.wire.receive_buffer import ConnectionReceiveMemory, ReceiveMemory

log = logging.getLogger(__name__)

_BUFFER_BYTES = 64 * 1024
_MAX_BODY_BYTES = 1024 * 1024

# Limit of bytes received before the response: a body with chunk framing, or pipelined requests.
_MAX_UNANSWERED_BYTES = 4 * _MAX_BODY_BYTES
_MAX_QUERY_FIELDS = 100

_ERRORS = {413: "TooLarge", 431: "TooLarge", 501: "NotImplemented", 505: "NotImplemented"}


class HttpRequest(NamedTuple):
    """`path`: as sent, still percent-encoded. `login`: value of the header Authorization, or empty."""

    method: str
    path: str
    query: dict[str, str]
    body: bytes
    login: bytes = b""
    is_cross_origin: bool = False
    """True if a web page of another origin sent the request."""
    unknown_host: str | None = None
    """Host that the request names, if it is not known."""
    headers: Mapping[bytes, bytes] = MappingProxyType({})

    @property
    def asked(self) -> str:
        return f"{self.method} {self.path}"


class BadHttpRequest(ProtocolError):
    """The received bytes are not a valid request; the response has this status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class HttpConversation:
    """One connection. Responses are sent in the order of the requests. An invalid request gets an error response and
    closes the connection."""

    def __init__(
        self,
        api: TopicsApi,
        authenticator: Authenticator,
        login_log: LoginLog,
        metrics: Metrics,
        is_ready: Callable[[], bool],
        caller: Caller,
        outlet: SessionControl,
        write_refusal_reason: Callable[[], str] = lambda: "",
        slices: SliceRunner | None = None,
        received: ReceiveMemory | None = None,
        hosts: KnownHosts | None = None,
        metrics_access: str = "all",
        console: Console | None = None,
    ) -> None:
        """`write_refusal_reason`: returns the reason why writes are refused at present, or an empty text."""
        self._console = without_numbers(authenticator) if console is None else console
        self._slices = SliceRunner() if slices is None else slices
        self._hosts = KnownHosts("*") if hosts is None else hosts
        self._metrics_access = metrics_access
        self._write_refusal_reason = write_refusal_reason
        self._api = api
        self._authenticator = authenticator
        self._login_log = login_log
        self._logged_in_as = ""
        self._certificate_user: str | None = None
        self._metrics = metrics
        self._is_ready = is_ready
        self._caller = caller
        self._outlet = outlet
        self._buffer = bytearray(_BUFFER_BYTES)
        self._http = h11.Connection(h11.SERVER)
        self._head: h11.Request | None = None
        self._body = bytearray()
        self._unanswered_bytes = 0
        self._is_answering = self._is_closed = False
        self._held = ConnectionReceiveMemory(received)
        self._held.attach(source_of(caller.address), lambda reason: outlet.abort(reason))

    def get_buffer(self, size_hint: int) -> bytearray:
        return self._buffer

    def buffer_updated(self, count: int) -> None:
        self._unanswered_bytes += count
        self._held.change(count)
        self._http.receive_data(bytes(memoryview(self._buffer)[:count]))

    def identify(self, principal: str) -> None:
        self._certificate_user = principal

    # -- requests

    def next_event(self) -> HttpRequest | None:
        if self._unanswered_bytes > _MAX_UNANSWERED_BYTES:
            raise BadHttpRequest(413, "too many bytes were sent before the response")
        try:
            return self._next_request()
        except h11.RemoteProtocolError as error:
            raise BadHttpRequest(error.error_status_hint, f"invalid HTTP/1.1 request: {error}") from None

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
                self._held.change(self._unanswered_bytes - self._held.count)
                return self._request()
            else:  # NEED_DATA or PAUSED
                if self._held.must_close():
                    raise BadHttpRequest(503, self._held.reason)
                if event is h11.PAUSED and self._is_answering:
                    self._outlet.hold_reading()  # a pipelined request waits until the current response is sent
                return None

    def _begin(self, head: h11.Request) -> None:
        self._head = head
        self._body = bytearray()
        if not head.http_version.startswith(b"1."):
            raise BadHttpRequest(505, f"HTTP/{head.http_version.decode()} is not supported, use HTTP/1.1")
        names = [name for name, _ in head.headers]
        if b"content-length" in names and b"transfer-encoding" in names:
            # A proxy that reads the other one would see another request behind this one.
            raise BadHttpRequest(400, "Content-Length together with Transfer-Encoding")
        for name, value in head.headers:
            if name == b"content-length":
                self._check_length(int(value))
        if self._http.they_are_waiting_for_100_continue:
            self._outlet.send([self._http.send(h11.InformationalResponse(status_code=100, headers=[]))])

    def _check_length(self, length: int) -> None:
        if length > _MAX_BODY_BYTES:
            raise BadHttpRequest(413, f"the request body is longer than {_MAX_BODY_BYTES} bytes")

    def _request(self) -> HttpRequest:
        assert self._head is not None
        path, query = _split(self._head.target.decode("ascii"))
        try:
            fields = parse_qs(query, max_num_fields=_MAX_QUERY_FIELDS)
        except ValueError as error:
            raise BadHttpRequest(400, f"invalid query: {error}") from None
        last = {name: values[-1] for name, values in fields.items()}
        login = next((value for name, value in self._head.headers if name == b"authorization"), b"")
        foreign = is_cross_origin(self._head.method, self._head.headers, self._hosts)
        unknown_host = self._hosts.find_unknown(self._head.headers)
        method, headers = self._head.method.decode("ascii"), dict(self._head.headers)
        return HttpRequest(method, path, last, bytes(self._body), login, foreign, unknown_host, headers)

    # -- responses

    def handle(self, event: object) -> Reply:
        assert isinstance(event, HttpRequest)
        self._is_answering = True
        answer = self._answer(event)
        if isinstance(answer, DeferredResponse):
            return self._answer_later(event, answer)
        if answer.ticket is None:
            return Reply.now(self._encode(event, answer))
        return Reply.when_durable(answer.ticket.number, partial(self._encode_durable, event, answer))

    def _encode_durable(self, request: HttpRequest, answer: HttpResponse) -> Parts:
        refusal = None if answer.ticket is None else answer.ticket.refusal
        return self._encode(request, answer if refusal is None else refusal_response(refusal))

    def _answer_later(self, request: HttpRequest, later: DeferredResponse) -> Reply:
        is_over = False

        def abandon() -> None:
            nonlocal is_over
            is_over = True

        def answered(answer: HttpResponse) -> None:
            nonlocal is_over
            if is_over:
                return  # the client is gone, or a failure followed the response
            is_over = True
            # Encoded when sent, not now: encoding may close the connection, which abandons replies that are not ready.
            number = 0 if answer.ticket is None else answer.ticket.number
            reply.resolve_when_durable(number, partial(self._encode_durable, request, answer))

        reply = DeferredReply(on_abandon=abandon, resolves_soon=True)
        later.begin_guarded(request.asked, answered)
        return reply

    def _answer(self, request: HttpRequest) -> HttpResponse | DeferredResponse:
        return guarded(request.asked, lambda: self._route(request))

    def _route(self, request: HttpRequest) -> HttpResponse | DeferredResponse:
        method = "GET" if request.method == "HEAD" else request.method
        if request.path in ("/healthz", "/readyz", "/metrics") and method != "GET":
            return not_allowed(method, "GET, HEAD")
        if request.path == "/healthz":
            return HttpResponse.text(200, "ok\n")
        if request.path == "/readyz":
            return self._readiness()
        if request.unknown_host is not None:
            reason = f"{request.unknown_host!r} is no known name of this broker; http.hosts lists further ones"
            return error_response(403, "UnknownHost", reason)
        if request.path == "/metrics":
            return self._answer_metrics(request)
        if request.is_cross_origin:
            return error_response(403, "ForeignPage", "cross-origin requests may not change anything")
        if (page := self._console.answer_file(method, request.path, request.headers)) is not None:
            return page
        if request.path == "/api/session":
            return self._answer_session(method, request)
        if request.path == "/api/live":
            return self._answer_live(method, request)
        if not self._authenticator.is_login_required:
            return self._api.answer(self._caller, method, request.path, request.query, request.body)

        def act(caller: Caller) -> HttpResponse | DeferredResponse:
            return self._api.answer(caller, method, request.path, request.query, request.body)

        return self._act_as_user(request, act)

    def _answer_session(self, method: str, request: HttpRequest) -> HttpResponse | DeferredResponse:
        """GET: the user of the browser's session. POST: opens one. DELETE: ends it."""
        sessions, token = self._console.sessions, read_token(request.headers)
        if method == "GET":
            is_needed = self._authenticator.is_login_required
            user = sessions.find_user(token) if is_needed else None
            return HttpResponse.json(200, {"user": user, "login_required": is_needed})
        if method not in ("POST", "DELETE"):
            return not_allowed(method, "GET, HEAD, POST, DELETE")
        if PAGE_HEADER not in request.headers:
            return error_response(403, "ForeignPage", "sessions are opened by the console: send the header X-TriMQ: 1")
        if method == "DELETE":
            sessions.end(token)
            return HttpResponse(204, b"", JSON, headers=clear_cookie())
        try:
            form = msgspec.json.decode(request.body, type=LoginForm)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            return bad_request("login", error)

        is_encrypted = request.headers.get(b"origin", b"").startswith(b"https:")

        def opened(caller: Caller) -> HttpResponse:
            cookie = set_cookie(sessions.open(caller.principal), is_encrypted)
            return HttpResponse.json(200, {"user": caller.principal, "login_required": True})._replace(headers=cookie)

        return DeferredResponse(partial(self._log_in, request, (form.user, form.password), opened))

    def _answer_live(self, method: str, request: HttpRequest) -> HttpResponse | DeferredResponse:
        if method != "GET":
            return not_allowed(method, "GET, HEAD")

        def open_stream(caller: Caller) -> HttpResponse:
            if self._console.live.is_full:
                return error_response(503, "TooManyPages", "too many pages have live numbers (http.live_pages)")
            return HttpResponse(200, b"", EVENT_STREAM, is_stream=request.method != "HEAD")

        if not self._authenticator.is_login_required:
            return open_stream(self._caller)
        return self._act_as_user(request, open_stream)

    def _answer_metrics(self, request: HttpRequest) -> HttpResponse | DeferredResponse:
        def respond() -> HttpResponse | DeferredResponse:
            return self._slices.respond("GET /metrics", self._render_metrics())

        if self._metrics_access != "login" or not self._authenticator.is_login_required:
            return respond()
        return self._act_as_user(request, lambda caller: respond())

    def _render_metrics(self) -> Steps[HttpResponse]:
        body = BodyBuilder()
        hidden = ("group", "topic") if self._metrics_access == "no-names" else ()
        for piece in self._metrics.render_pieces(hidden):
            body.add(piece)
            yield
        return body.response(CONTENT_TYPE)

    def _act_as_user(
        self, request: HttpRequest, act: Callable[[Caller], HttpResponse | DeferredResponse]
    ) -> HttpResponse | DeferredResponse:
        """Acts as the user of the request's login, or else as the one that the certificate of the client names."""
        login = read_basic(request.login)
        if login is not None:
            return DeferredResponse(partial(self._log_in, request, login, act))
        if (user := self._find_session_user(request)) is not None:
            return act(dataclasses.replace(self._caller, principal=user))
        name = self._certificate_user
        if name is None or request.login:
            self._login_log.missing(self._caller, request.asked)
            return error_response(401, "LoginNeeded", "authentication required (HTTP Basic)")
        if not self._authenticator.admits_certificate(name, self._caller.address):
            self._login_log.failed(self._caller.protocol, "EXTERNAL", name, self._caller.address, "unknown user")
            return error_response(401, "WrongLogin", "the certificate of the client names no user")
        self._count_login(name, "EXTERNAL")
        return act(dataclasses.replace(self._caller, principal=name))

    def _find_session_user(self, request: HttpRequest) -> str | None:
        """Returns the user of the browser's session. Changes need the header that only a page of the console sends."""
        if request.method not in ("GET", "HEAD") and PAGE_HEADER not in request.headers:
            return None
        user = self._console.sessions.find_user(read_token(request.headers))
        return user if user is not None and self._authenticator.is_admitted(user, self._caller.address) else None

    def _count_login(self, name: str, mechanism: str) -> None:
        if name != self._logged_in_as:  # each request carries the login: count it once per connection
            self._logged_in_as = name
            self._login_log.succeeded(self._caller.protocol, mechanism, name, self._caller.address)

    def _log_in(
        self,
        request: HttpRequest,
        login: tuple[str, str],
        act: Callable[[Caller], HttpResponse | DeferredResponse],
        done: Callable[[HttpResponse], None],
    ) -> None:
        name, password = login

        def checked(is_right: bool) -> None:
            if not is_right:
                reason = "unknown user or wrong password"
                self._login_log.failed(self._caller.protocol, "Basic", name, self._caller.address, reason)
                done(error_response(401, "WrongLogin", "invalid user name or password"))
                return
            self._count_login(name, "Basic")
            caller = dataclasses.replace(self._caller, principal=name)
            answer = guarded(request.asked, lambda: act(caller))
            if isinstance(answer, DeferredResponse):
                answer.begin_guarded(request.asked, done)
            else:
                done(answer)

        self._authenticator.check(name, password, self._caller.address, checked, lambda: not self._is_closed)

    def _readiness(self) -> HttpResponse:
        """Reports ready also while writes are refused: consumers must stay connected to free space."""
        if not self._is_ready():
            return HttpResponse.text(503, "not ready\n")
        refused = self._write_refusal_reason()
        return HttpResponse.text(200, f"ready, but writes are refused: {refused}\n" if refused else "ready\n")

    def _encode(self, request: HttpRequest, answer: HttpResponse) -> Parts:
        if answer.is_stream:
            return self._begin_stream(answer)
        self._is_answering = False
        parts = self._write(answer, has_body=request.method != "HEAD", headers=request.headers)
        self._head = None
        if self._http.our_state is h11.MUST_CLOSE:
            self._outlet.close()
        else:
            self._outlet.release_reading()
        return parts

    def _begin_stream(self, answer: HttpResponse) -> Parts:
        """Events follow until the connection ends."""
        self._outlet.disable_idle_timeout()
        headers = [("content-type", answer.content_type), ("cache-control", "no-store")]
        head = self._http.send(h11.Response(status_code=answer.status, headers=headers))
        event = self._http.send(h11.Data(data=self._console.live.watch(self)))
        return [part for part in (head, event) if part]

    @property
    def is_congested(self) -> bool:
        return self._outlet.is_congested

    def send_event(self, event: bytes) -> None:
        part = self._http.send(h11.Data(data=event))
        if part:
            self._outlet.send([part])

    def give_up(self) -> None:
        self._outlet.abort("it does not read its live events")

    def _write(
        self,
        answer: HttpResponse,
        has_body: bool = True,
        closes: bool = False,
        headers: Mapping[bytes, bytes] = MappingProxyType({}),
    ) -> Parts:
        """`headers`: those of the request."""
        answer = compressed(answer, headers)
        asks_for_login = answer.status == 401 and PAGE_HEADER not in headers
        return self._write_parts(answer, has_body, closes, asks_for_login)

    def _write_parts(self, answer: HttpResponse, has_body: bool, closes: bool, asks_for_login: bool) -> Parts:
        headers = list(answer.headers)
        if answer.status != 204:  # 204 has no body and no content length
            headers += [("content-type", answer.content_type), ("content-length", str(answer.length))]
        if answer.content_type == JSON:
            headers.append(("cache-control", "no-store"))
        if answer.allow:
            headers.append(("allow", answer.allow))
        if asks_for_login:  # not from a page of the console, which has a form of its own
            headers.append(("www-authenticate", 'Basic realm="trimq", charset="UTF-8"'))
        if closes:
            headers.append(("connection", "close"))
        parts: list[Buffer | None] = [self._http.send(h11.Response(status_code=answer.status, headers=headers))]
        for piece in (answer.body, *answer.parts) if has_body else ():
            parts += (
                self._http.send_with_data_passthrough(h11.Data(data=cast(bytes, piece))) or ()
            )  # large parts are not copied
        parts.append(self._http.send(h11.EndOfMessage()))
        return [part for part in parts if part]

    def release_memory(self) -> bool:
        """The receive buffer is small: it is kept."""
        return True

    def on_congestion_end(self) -> None:
        """No effect: HTTP sends nothing without a request."""

    def closing_parts(self, error: ProtocolError) -> Parts:
        if isinstance(error, Stopping):
            return ()  # no request is pending
        if self._is_answering or self._http.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            return ()  # an error would be sent before the pending response
        status = error.status if isinstance(error, BadHttpRequest) else 400
        has_body = self._head is None or self._head.method != b"HEAD"
        answer = error_response(status, _ERRORS.get(status, "BadRequest"), str(error))
        return self._write(answer, has_body=has_body, closes=True)

    def describe(self) -> ConnectionDetails:
        return ConnectionDetails()

    def closed(self) -> None:
        self._is_closed = True
        self._console.live.forget(self)
        self._held.give_back()


def read_basic(header: bytes) -> tuple[str, str] | None:
    """Returns user name and password of an Authorization header (Basic), or None if it has none."""
    scheme, _, encoded = header.partition(b" ")
    try:
        name, colon, password = base64.b64decode(encoded, validate=True).decode("utf-8").partition(":")
    except ValueError:
        return None
    return (name, password) if scheme.lower() == b"basic" and colon else None


def _split(target: str) -> tuple[str, str]:
    """Returns path and query of a request target. Clients of proxies send it with scheme and host."""
    for scheme in ("http://", "https://"):
        if target.lower().startswith(scheme):
            target = "/" + target[len(scheme) :].partition("/")[2]
    path, _, query = target.partition("#")[0].partition("?")
    return path, query


class HttpFrontEnd:
    def __init__(
        self,
        broker: Broker,
        records_api: RecordsApi,
        group_admin: CommitLogGroupAdmin | None,
        authenticator: Authenticator,
        login_log: LoginLog,
        metrics: Metrics,
        is_ready: Callable[[], bool],
        shared: CommitLogTopicsApi | None = None,
        write_refusal_reason: Callable[[], str] = lambda: "",
        further: Sequence[OtherApi] = (),
        timeline: Timeline | None = None,
    ) -> None:
        """`further`: APIs of the node itself, beside those of the broker."""
        self._slices = slices = SliceRunner(timeline)
        time = LoopTime() if timeline is None else timeline
        overview = OverviewApi(broker, metrics, write_refusal_reason, time, slices)
        is_system_topic = (lambda _: False) if shared is None else shared.is_system_topic
        own: tuple[OtherApi, ...] = (
            GroupsApi(broker.groups, records_api, group_admin, shared, slices),
            StreamsApi(records_api, is_system_topic, slices),
            UsersApi(broker),
            AclsApi(broker.acl_entries),
            QueuesApi(broker, slices),
            DefinitionsApi(broker, slices),
            ProducersApi(broker, group_admin, slices),
            overview,
            MessagesApi(broker, records_api),
        )
        self._api = TopicsApi(broker, (*own, *further), shared, slices)
        self._authenticator = authenticator
        self._login_log = login_log
        self._metrics = metrics
        self._is_ready = is_ready
        self._write_refusal_reason = write_refusal_reason
        self._received = ReceiveMemory(broker.settings.http.received_bytes)
        self._hosts = known_hosts(broker.settings)
        self._console = open_console(broker.settings.http, authenticator, time, overview.sample)
        self._metrics_access = broker.settings.http.metrics

    def open_conversation(self, address: str, outlet: SessionControl) -> HttpConversation:
        caller = Caller(principal=ANONYMOUS, client_id="", address=address, protocol="http")
        return HttpConversation(
            self._api,
            self._authenticator,
            self._login_log,
            self._metrics,
            self._is_ready,
            caller,
            outlet,
            self._write_refusal_reason,
            self._slices,
            self._received,
            self._hosts,
            self._metrics_access,
            self._console,
        )
