"""Login of one connection: which mechanism is under way, who has logged in, and until when (KIP-368). Knows no
request."""

from __future__ import annotations

from trimq.clock import Clock
from trimq.protocols.kafka.logins.mechanisms import Exchange, LoggedIn


class LoginSession:
    """A connection may log in again, as the same principal, to extend its session."""

    __slots__ = (
        "_clock",
        "_expires_ms",
        "_is_under_way",
        "_lifetime_ms",
        "exchange",
        "has_logged_in",
        "is_restricted",
        "mechanism",
    )

    def __init__(self, clock: Clock, lifetime_ms: int) -> None:
        self._clock = clock
        self._lifetime_ms = lifetime_ms
        self._expires_ms: int | None = None
        self._is_under_way = False
        self.exchange: Exchange | None = None
        """Login under way that waits for a token of the client."""
        self.mechanism = ""
        """Of the last handshake."""
        self.has_logged_in = False
        self.is_restricted = False
        """False: every request is allowed. True: ask `refusal`."""

    def begin(self, mechanism: str, exchange: Exchange) -> None:
        self.mechanism, self.exchange = mechanism, exchange
        self._is_under_way = self.is_restricted = True

    def end(self) -> None:
        self.exchange = None
        self._is_under_way = False
        self.is_restricted = self._expires_ms is not None

    def logged_in(self, login: LoggedIn) -> int:
        """Starts or extends the session. Returns its lifetime in milliseconds, 0 if it has no end."""
        self.has_logged_in = True
        limits = [self._lifetime_ms] if self._lifetime_ms else []
        if login.expires_at_ms is not None:
            limits.append(max(login.expires_at_ms - self._clock.message.now_ms(), 0))
        if not limits:
            self._expires_ms = None
            return 0
        lifetime_ms = min(limits)
        self._expires_ms = self._clock.liveness.now_ms() + lifetime_ms
        return lifetime_ms

    def refusal(self) -> str:
        """Returns why a request that is not part of a login must close the connection; empty: it may be served."""
        if self._is_under_way:
            return "a request came in the middle of a login"
        if self._expires_ms is not None and self._clock.liveness.now_ms() >= self._expires_ms:
            return "the session has expired: the client did not log in again in time"
        return ""
