"""Login of one connection: which mechanism is under way, who has logged in, and until when (KIP-368). Knows no
request."""

from __future__ import annotations

from trimq.clock import Clock
from trimq.protocols.kafka.logins.mechanisms import Exchange, LoggedIn


class LoginSession:
    """A connection may log in again, as the same principal with the same mechanism, to extend its session."""

    __slots__ = ("_clock", "_lifetime_ms", "exchange", "expires_ms", "has_logged_in", "mechanism", "next_mechanism")

    def __init__(self, clock: Clock, lifetime_ms: int) -> None:
        self._clock = clock
        self._lifetime_ms = lifetime_ms
        self.exchange: Exchange | None = None
        """Login under way that waits for a token of the client."""
        self.mechanism = ""
        """Of the last complete login."""
        self.next_mechanism = ""
        """Of the login under way."""
        self.has_logged_in = False
        self.expires_ms: int | None = None
        """End of the session on the liveness clock. None: it does not end."""

    @property
    def is_expired(self) -> bool:
        return self.expires_ms is not None and self._clock.liveness.now_ms() >= self.expires_ms

    def logged_in(self, login: LoggedIn) -> int:
        """Starts or extends the session. Returns its lifetime in milliseconds, 0 if it has no end."""
        self.has_logged_in = True
        self.mechanism = self.next_mechanism
        limits = [self._lifetime_ms] if self._lifetime_ms else []
        if login.expires_at_ms is not None:
            limits.append(max(login.expires_at_ms - self._clock.message.now_ms(), 0))
        if not limits:
            self.expires_ms = None
            return 0
        lifetime_ms = min(limits)
        self.expires_ms = self._clock.liveness.now_ms() + lifetime_ms
        return lifetime_ms
