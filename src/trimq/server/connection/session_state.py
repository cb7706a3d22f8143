"""State machine of a connection as a table of states and events, and the reasons for which the broker stops reading
from a peer. Knows neither a transport nor a front-end."""

from __future__ import annotations

from enum import Enum, Flag, auto


class SessionState(Enum):
    ACCEPTED = "accepted"
    """Accepted by the listener; there is no transport yet."""
    OPENING = "opening"
    """The front-end creates its conversation."""
    OPEN = "open"
    HALF_CLOSED = "half closed"
    """The peer sends no more; its requests are handled and answered."""
    DRAINING = "draining"
    """No more requests are taken. Pending replies are sent, then the transport is closed."""
    DRAINING_TO_LINGER = "draining to linger"
    """As DRAINING; but the peer may be sending, so LINGERING follows once everything is sent."""
    DRAINING_AFTER_EOF = "draining after eof"
    """As DRAINING; the peer sends no more."""
    LINGERING = "lingering"
    """Everything is sent. Bytes that the peer still sends are discarded, for one second at most."""
    CANCELLED = "cancelled"
    """Closed while ACCEPTED: aborted as soon as there is a transport."""
    ABORTED = "aborted"
    """The transport is aborted; a conversation was never opened."""
    LOST = "lost"
    """The transport is closed, and all resources of the connection are freed."""


class SessionEvent(Enum):
    MADE = auto()
    """There is a transport."""
    OPENED = auto()
    OPENING_FAILED = auto()
    END_OF_INPUT = auto()
    """The peer has closed its side."""
    CLOSE = auto()
    """The broker closes: idle timeout, shutdown, or all requests answered after END_OF_INPUT."""
    CLOSE_AND_LINGER = auto()
    """The front-end closes, or an error does: the peer may be sending."""
    LINGER = auto()
    """Everything is sent, and the transport can close its sending side alone."""
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
"""The state after each event. Events that are not listed leave the state unchanged."""


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
    """Reasons to stop reading from a peer, independent of each other, each until it is explicitly ended. Two more
    reasons follow from the limits of the connection and are not stored: too many pending replies, too many unsent
    bytes."""

    OVER_QUOTA = auto()
    """Until the throttle time is over."""
    FRONT_END = auto()
    """Until the front-end releases it: there is no room for a request, or the next one depends on a reply."""
