"""HTTP responses before encoding: status and body, immediate or deferred. Knows no route."""

from __future__ import annotations

import logging
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeVar

import msgspec

from trimq.errors import Refusal
from trimq.model import Buffer
from trimq.server.http.status_codes import status_of
from trimq.storage.group_commit.passes import Ticket

log = logging.getLogger(__name__)

JSON = "application/json"

_SMALLEST_COMPRESSED = 1024
_LARGEST_COMPRESSED = 128 * 1024
_GZIP = 31  # window size of zlib, in the format of gzip

T = TypeVar("T")

Headers = tuple[tuple[str, str], ...]


class HttpResponse(NamedTuple):
    """Response with status and body. `ticket`: send the response only once its pass is durable. `allow`: allowed
    methods of a 405 response. `parts`: follow the body, not copied. `headers`: further ones.
    `is_stream`: the body is sent later, in parts, and ends with the connection."""

    status: int
    body: bytes
    content_type: str
    ticket: Ticket | None = None
    allow: str = ""
    parts: Sequence[Buffer] = ()
    headers: Headers = ()
    is_stream: bool = False

    @property
    def length(self) -> int:
        return len(self.body) + sum(map(len, self.parts))

    @classmethod
    def text(cls, status: int, text: str) -> HttpResponse:
        return cls(status, text.encode(), "text/plain; charset=utf-8")

    @classmethod
    def json(cls, status: int, value: object, ticket: Ticket | None = None) -> HttpResponse:
        return cls(status, msgspec.json.encode(value), JSON, ticket)


def compressed(response: HttpResponse, headers: Mapping[bytes, bytes]) -> HttpResponse:
    """Returns the response, compressed if the client accepts that and it is worth the time: neither tiny nor so large
    that other clients would wait."""
    is_text = response.content_type == JSON or response.content_type.startswith("text/plain")
    if (
        not is_text
        or response.parts
        or not _SMALLEST_COMPRESSED <= len(response.body) <= _LARGEST_COMPRESSED
        or b"gzip" not in headers.get(b"accept-encoding", b"")
    ):
        return response
    further = (*response.headers, ("content-encoding", "gzip"), ("vary", "accept-encoding"))
    return response._replace(body=zlib.compress(response.body, 5, _GZIP), headers=further)


def refusal_response(refusal: Refusal) -> HttpResponse:
    return HttpResponse.json(status_of(refusal), {"error": type(refusal).__name__, "message": str(refusal)})


def error_response(status: int, error: str, message: str) -> HttpResponse:
    """Returns a response in the format of a refusal, for requests that did not reach the broker."""
    return HttpResponse.json(status, {"error": error, "message": message})


def guarded(asked: str, make: Callable[[], T]) -> T | HttpResponse:
    """Returns the result of `make`, or an error response if it fails."""
    try:
        return make()
    except Refusal as refusal:
        return refusal_response(refusal)
    except Exception:
        log.exception("%s: unexpected error", asked)
        return error_response(500, "InternalError", "internal error, see the log of the broker")


def bad_request(what: str, error: Exception) -> HttpResponse:
    return error_response(400, "BadRequest", f"invalid description of the {what}: {error}")


def not_allowed(method: str, allow: str) -> HttpResponse:
    return error_response(405, "MethodNotAllowed", f"{method} is not allowed here, use {allow}")._replace(allow=allow)


def not_found(path: str) -> HttpResponse:
    return error_response(404, "NotFound", f"no resource at {path}")


Done = Callable[[HttpResponse], None]


class DeferredResponse(NamedTuple):
    """Response that is not ready yet. `begin` is given a callback and calls it once with the response."""

    begin: Callable[[Done], None]

    def begin_guarded(self, asked: str, done: Done) -> None:
        """As `begin`, but an exception becomes an error response. Use it in callbacks, where an exception would leave
        the client without a response."""
        if (failure := guarded(asked, lambda: self.begin(done))) is not None:
            done(failure)
