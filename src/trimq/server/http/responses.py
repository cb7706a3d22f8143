"""What the HTTP port answers, before it is put into bytes: a status with a body, now or later. Knows no route."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

import msgspec

from trimq.errors import Refusal
from trimq.model import Buffer
from trimq.server.http.status_codes import status_of
from trimq.storage.group_commit.passes import Ticket

log = logging.getLogger(__name__)

JSON = "application/json"

T = TypeVar("T")


class HttpResponse(NamedTuple):
    """With a ticket, it is true only once the ticket's pass is durable. `allow`: the methods that would have been
    served, when the one that was used is not. `parts` follow the body, uncopied."""

    status: int
    body: bytes
    content_type: str
    ticket: Ticket | None = None
    allow: str = ""
    parts: Sequence[Buffer] = ()

    @property
    def length(self) -> int:
        return len(self.body) + sum(map(len, self.parts))

    @classmethod
    def text(cls, status: int, text: str) -> HttpResponse:
        return cls(status, text.encode(), "text/plain; charset=utf-8")

    @classmethod
    def json(cls, status: int, value: object, ticket: Ticket | None = None) -> HttpResponse:
        return cls(status, msgspec.json.encode(value), JSON, ticket)


def refusal_response(refusal: Refusal) -> HttpResponse:
    return HttpResponse.json(status_of(refusal), {"error": type(refusal).__name__, "message": str(refusal)})


def error_response(status: int, error: str, message: str) -> HttpResponse:
    """As a refusal, for what never reached the broker."""
    return HttpResponse.json(status, {"error": error, "message": message})


def guarded(asked: str, make: Callable[[], T]) -> T | HttpResponse:
    """What is made, or an answer that says why there is nothing else."""
    try:
        return make()
    except Refusal as refusal:
        return refusal_response(refusal)
    except Exception:
        log.exception("%s failed unexpectedly", asked)
        return error_response(500, "InternalError", "the broker failed; its log says more")


def bad_request(what: str, error: Exception) -> HttpResponse:
    return error_response(400, "BadRequest", f"the {what} is not described as it should be: {error}")


def not_allowed(method: str, allow: str) -> HttpResponse:
    return error_response(405, "MethodNotAllowed", f"{method} is not served here, only {allow}")._replace(allow=allow)


def not_found(path: str) -> HttpResponse:
    return error_response(404, "NotFound", f"there is nothing at {path}")


Done = Callable[[HttpResponse], None]


class DeferredResponse(NamedTuple):
    """An answer that is not there yet: `begin` calls what it is given with it, once."""

    begin: Callable[[Done], None]

    def begin_guarded(self, asked: str, done: Done) -> None:
        """If it fails, that is the answer. Whoever goes on in a call of somebody else begins like this: an exception
        there would leave the client without one for ever."""
        if (failure := guarded(asked, lambda: self.begin(done))) is not None:
            done(failure)
