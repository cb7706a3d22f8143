"""Console on the HTTP port: its files, the sessions of browsers, and live numbers. Knows no socket."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from trimq.clock import LoopTime, Timeline
from trimq.config.settings import Http
from trimq.core.security.authentication import Authenticator
from trimq.server.http.browser_sessions import BrowserSessions
from trimq.server.http.event_streams import LiveEvents
from trimq.server.http.responses import HttpResponse

if TYPE_CHECKING:
    from trimq.server.http.console_files import ConsoleFiles


class LoginForm(msgspec.Struct, forbid_unknown_fields=True):
    user: str
    password: str


class Console:
    def __init__(self, sessions: BrowserSessions, live: LiveEvents) -> None:
        self.sessions = sessions
        self.live = live
        self._files: ConsoleFiles | None = None

    def answer_file(self, method: str, path: str, headers: Mapping[bytes, bytes]) -> HttpResponse | None:
        """Returns None unless a browser opens a page of the console or loads one of its files."""
        if not path.startswith("/assets/") and b"text/html" not in headers.get(b"accept", b""):
            return None
        if self._files is None:
            from trimq.server.http.console_files import ConsoleFiles  # at the first request: a start does not need it

            self._files = ConsoleFiles()
        return self._files.answer(method, path, headers)


def open_console(
    settings: Http, authenticator: Authenticator, timeline: Timeline, sample: Callable[[], dict[str, Any]]
) -> Console:
    """`sample`: returns the numbers that live pages show."""
    sessions = BrowserSessions(authenticator, timeline, settings.sessions, settings.session_minutes)
    return Console(sessions, LiveEvents(timeline, sample, settings.live_pages))


def without_numbers(authenticator: Authenticator) -> Console:
    """Returns a console whose live events are empty."""
    return open_console(Http(), authenticator, LoopTime(), dict)
