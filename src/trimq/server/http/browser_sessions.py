"""Logins of browsers: a session is opened with name and password, and known by a cookie until it ends. In memory: a
restart ends all sessions. Knows no socket."""

from __future__ import annotations

import hashlib
import secrets
from collections import OrderedDict
from collections.abc import Mapping
from typing import NamedTuple

from trimq.clock import Timeline
from trimq.core.security.authentication import Authenticator
from trimq.server.http.responses import Headers

COOKIE = "trimq_session"

# A browser sends this header only from a page of this origin: a form of another site cannot.
PAGE_HEADER = b"x-trimq"

_MINUTE_MS = 60_000
_TOKEN_BYTES = 32


class _Session(NamedTuple):
    user: str
    until_ms: int


class BrowserSessions:
    """Ends the sessions of a user that is deleted or gets another password. `limit`: maximum number of sessions."""

    def __init__(self, authenticator: Authenticator, timeline: Timeline, limit: int, minutes: int) -> None:
        self._timeline = timeline
        self._limit = limit
        self._longest_ms = minutes * _MINUTE_MS
        # By digest: who reads the memory of a search cannot use what is there.
        self._sessions: OrderedDict[bytes, _Session] = OrderedDict()
        authenticator.on_removed(self.end_all_of)
        authenticator.on_password_changed(self.end_all_of)

    def open(self, user: str) -> str:
        """Returns the token of a new session. The oldest one ends if there are too many."""
        token = secrets.token_urlsafe(_TOKEN_BYTES)
        self._sessions[_digest(token)] = _Session(user, self._timeline.now_ms() + self._longest_ms)
        if len(self._sessions) > self._limit:
            self._sessions.popitem(last=False)
        return token

    def find_user(self, token: str) -> str | None:
        """Returns the user of the session. None: there is no such session, or it has ended."""
        session = self._sessions.get(_digest(token))
        if session is None or session.until_ms <= self._timeline.now_ms():
            return None
        return session.user

    def end(self, token: str) -> None:
        self._sessions.pop(_digest(token), None)

    def end_all_of(self, user: str) -> None:
        for digest, session in list(self._sessions.items()):
            if session.user == user:
                del self._sessions[digest]


def read_token(headers: Mapping[bytes, bytes]) -> str:
    """Returns the token of the request's cookie, or an empty text."""
    for part in headers.get(b"cookie", b"").split(b";"):
        name, _, value = part.strip().partition(b"=")
        if name == COOKIE.encode():
            return value.decode("latin-1")
    return ""


def set_cookie(token: str, is_encrypted: bool) -> Headers:
    """Returns the header that stores the token in the browser until that is closed, out of reach of scripts and of
    other sites."""
    secure = "; Secure" if is_encrypted else ""
    return (("set-cookie", f"{COOKIE}={token}; Path=/; HttpOnly; SameSite=Strict{secure}"),)


def clear_cookie() -> Headers:
    return (("set-cookie", f"{COOKIE}=; Path=/; HttpOnly; SameSite=Strict; Max-Age=0"),)


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("latin-1", "replace")).digest()
