"""States of a connection and the events that lead from one to the next, as a table; and the reasons for which the
broker stops reading from a peer. Knows neither a transport nor a front-end."""

from __future__ import annotations

from enum import Enum, Flag, auto


class SessionState(Enum):
    ACCEPTED = "accepted"
    """By the listener; there is no transport yet."""
    OPENING = "opening"
    """The front-end makes its conversation."""
    OPEN = "open"
    HALF_CLOSED = "half closed"
    """The peer sends no more; its requests are handled and answered."""
    DRAINING = "draining"
    """No more requests are taken. Pending replies are sent, then the transport is closed."""
    DRAINING_TO_LINGER = "draining to linger"
    """As DRAINING; but the peer may be sending, and is waited for once everything is sent."""
    DRAINING_AFTER_EOF = "draining after eof"
    """As DRAINING; the peer sends no more."""
    LINGERING = "lingering"
    """Everything is sent. What the peer still sends is discarded, for a second at most."""
    CANCELLED = "cancelled"
    """Ended while ACCEPTED: aborted as soon as there is a transport."""
    ABORTED = "aborted"
    """The transport is aborted, and there never was a conversation."""
    LOST = "lost"
    """The transport is gone, and with it all that the connection held."""


class SessionEvent(Enum):
    MADE = auto()
    """There is a transport."""
    OPENED = auto()
    OPENING_FAILED = auto()
    END_OF_INPUT = auto()
    """The peer has closed its side."""
    CLOSE = auto()
    """By the broker, of a peer that waits for nothing or has been told: idle, shutdown, all answered after its end."""
    CLOSE_AND_LINGER = auto()
    """By the front-end or after an error, of a peer that may be sending."""
    LINGER = auto()
    """All is sent, and the transport can close one side alone."""
    ABORT = auto()
    LOST = auto()


_S, _E = SessionState, SessionEvent

TRANSITIONS: dict[SessionState, dict[SessionEvent, SessionState]] = {
    _S.ACCEPTED: {
        _E.MADE: _S.OPENING,
        _E.CLOSE: _S.CANCELLED,
        _E.CLOSE_AND_LINGER: _S.CANCELLED,
        _E.ABORT: _S.CANCELLED,
        _E.LOST: _S.LOST,
    },
    _S.CANCELLED: {_E.MADE: _S.ABORTED, _E.LOST: _S.LOST},
    _S.OPENING: {
        _E.OPENED: _S.OPEN,
        _E.OPENING_FAILED: _S.ABORTED,
        _E.CLOSE: _S.DRAINING,
        _E.CLOSE_AND_LINGER: _S.DRAINING_TO_LINGER,
        _E.LOST: _S.LOST,
    },
    _S.OPEN: {
        _E.END_OF_INPUT: _S.HALF_CLOSED,
        _E.CLOSE: _S.DRAINING,
        _E.CLOSE_AND_LINGER: _S.DRAINING_TO_LINGER,
        _E.LOST: _S.LOST,
    },
    _S.HALF_CLOSED: {
        _E.CLOSE: _S.DRAINING_AFTER_EOF,
        _E.CLOSE_AND_LINGER: _S.DRAINING_AFTER_EOF,
        _E.LOST: _S.LOST,
    },
    _S.DRAINING: {
        _E.OPENING_FAILED: _S.ABORTED,
        _E.END_OF_INPUT: _S.DRAINING_AFTER_EOF,
        _E.CLOSE_AND_LINGER: _S.DRAINING_TO_LINGER,
        _E.LOST: _S.LOST,
    },
    _S.DRAINING_TO_LINGER: {
        _E.OPENING_FAILED: _S.ABORTED,
        _E.END_OF_INPUT: _S.DRAINING_AFTER_EOF,
        _E.LINGER: _S.LINGERING,
        _E.LOST: _S.LOST,
    },
    _S.DRAINING_AFTER_EOF: {_E.LOST: _S.LOST},
    _S.LINGERING: {_E.LOST: _S.LOST},
    _S.ABORTED: {_E.LOST: _S.LOST},
    _S.LOST: {},
}
"""The state after each event that changes it; all others leave it as it is."""


def next_state(state: SessionState, event: SessionEvent) -> SessionState:
    return TRANSITIONS[state].get(event, state)


TAKES_REQUESTS = (SessionState.OPEN, SessionState.HALF_CLOSED)
HAS_ENDED_INPUT = (SessionState.HALF_CLOSED, SessionState.DRAINING_AFTER_EOF)
HAS_CONVERSATION = (
    *TAKES_REQUESTS,
    SessionState.DRAINING,
    SessionState.DRAINING_TO_LINGER,
    SessionState.DRAINING_AFTER_EOF,
    SessionState.LINGERING,
)


class ReadHold(Flag):
    """Reasons to read nothing from a peer until somebody ends them; they are independent of each other. Two more follow
    from the limits of the connection, and are not kept: too many pending replies, too many unsent bytes."""

    OVER_QUOTA = auto()
    """Until the throttle time is over."""
    FRONT_END = auto()
    """Until the front-end releases it: there is no room for a request, or the next depends on an answer."""
