"""State table of a connection, tested in both directions: a real session does what every entry says, and nothing
else."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
from server.scripted import Conversation, Peer, ScriptedFrontEnd, run

from trimq.protocols.contract import SessionControl
from trimq.server.connection.session import Session
from trimq.server.connection.session_state import (
    HAS_CONVERSATION,
    HAS_ENDED_INPUT,
    TAKES_REQUESTS,
    TRANSITIONS,
    ReadHold,
    SessionEvent,
    SessionState,
    next_state,
)

Act = Callable[[Session], object]


class Opening(ScriptedFrontEnd):
    """Acts on the session while it opens the conversation, and may fail."""

    def __init__(self, *acts: Act, fails: bool = False) -> None:
        super().__init__()
        self._acts = acts
        self._fails = fails
        self.states: list[SessionState] = []

    def open_conversation(self, address: str, outlet: SessionControl) -> Conversation:
        assert isinstance(outlet, Session)
        self.states.append(outlet._state)
        for act in self._acts:
            act(outlet)
            self.states.append(outlet._state)
        if self._fails:
            raise RuntimeError("planted")
        return super().open_conversation(address, outlet)


def close(session: Session) -> None:
    session.close_for_shutdown()


def close_and_linger(session: Session) -> None:
    session.close()


ACTS: dict[SessionEvent, Act] = {
    SessionEvent.END_OF_INPUT: lambda session: session.eof_received(),
    SessionEvent.CLOSE: close,
    SessionEvent.CLOSE_AND_LINGER: close_and_linger,
    SessionEvent.ABORT: lambda session: session.abort(),
    SessionEvent.LOST: lambda session: session.connection_lost(None),
}
"""The events that may come at any time."""


async def in_state(state: SessionState) -> Peer:
    if state is SessionState.ABORTED:
        return Peer(front_end=Opening(fails=True))
    peer = Peer(is_made=state not in (SessionState.ACCEPTED, SessionState.CANCELLED))
    acts: dict[SessionState, list[Act]] = {
        SessionState.CANCELLED: [ACTS[SessionEvent.ABORT]],
        SessionState.HALF_CLOSED: [ACTS[SessionEvent.END_OF_INPUT]],
        SessionState.DRAINING: [close],
        SessionState.DRAINING_TO_LINGER: [close_and_linger],
        SessionState.DRAINING_AFTER_EOF: [ACTS[SessionEvent.END_OF_INPUT], close],
        SessionState.LINGERING: [close_and_linger],
        SessionState.LOST: [ACTS[SessionEvent.LOST]],
    }
    if state in HAS_CONVERSATION and state is not SessionState.LINGERING:
        peer.say("pass 1 a")  # keeps the session from ending by itself
    for act in acts.get(state, []):
        act(peer.session)
    if state is SessionState.LINGERING:
        await peer.settle()
    return peer


ENTERED = [state for state in SessionState if state is not SessionState.OPENING]


@pytest.mark.parametrize("event", ACTS)
@pytest.mark.parametrize("state", ENTERED)
def test_a_session_follows_the_table(state: SessionState, event: SessionEvent) -> None:
    async def main() -> None:
        peer = await in_state(state)
        assert peer.session._state is state
        ACTS[event](peer.session)
        assert peer.session._state is next_state(state, event)
        peer.pipe.protocol = peer.session
        if state is not SessionState.LOST:
            peer.session.connection_lost(None)
        assert peer.ended == [peer.session]

    run(main)


@pytest.mark.parametrize("event", [*ACTS, SessionEvent.OPENED, SessionEvent.OPENING_FAILED])
def test_a_session_follows_the_table_while_its_front_end_opens_the_conversation(event: SessionEvent) -> None:
    async def main() -> None:
        acts = [ACTS[event]] if event in ACTS else []
        front_end = Opening(*acts, fails=event is SessionEvent.OPENING_FAILED)
        peer = Peer(front_end=front_end)
        then = next_state(SessionState.OPENING, event)
        assert front_end.states == [SessionState.OPENING, *[then for _ in acts]]
        assert peer.session._state is (then if not acts else next_state(then, SessionEvent.OPENED))

    run(main)


@pytest.mark.parametrize("act", [close, close_and_linger])
def test_a_session_closed_by_a_failing_front_end_is_aborted(act: Act) -> None:
    async def main() -> None:
        peer = Peer(front_end=Opening(act, fails=True))
        assert peer.session._state is SessionState.ABORTED
        await peer.settle()
        assert peer.ended == [peer.session]

    run(main)


@pytest.mark.parametrize("state", [SessionState.ACCEPTED, SessionState.CANCELLED])
def test_a_session_follows_the_table_when_it_is_made(state: SessionState) -> None:
    async def main() -> None:
        peer = Peer(is_made=False, front_end=(front_end := Opening()))
        if state is SessionState.CANCELLED:
            peer.session.close()
        peer.make()
        expected = next_state(state, SessionEvent.MADE)
        assert [*front_end.states, peer.session._state][0] is expected

    run(main)


@pytest.mark.parametrize("can_half_close", [True, False])
def test_a_session_lingers_only_where_its_transport_can_close_one_side(can_half_close: bool) -> None:
    async def main() -> None:
        peer = Peer()
        peer.pipe.can_write_eof = lambda: can_half_close  # type: ignore[method-assign]
        peer.session.close()
        assert peer.session._state is SessionState.DRAINING_TO_LINGER
        await peer.settle()
        assert peer.session._state is (SessionState.LINGERING if can_half_close else SessionState.LOST)
        assert next_state(SessionState.DRAINING_TO_LINGER, SessionEvent.LINGER) is SessionState.LINGERING

    run(main)


def test_every_entry_of_the_table_is_one_that_these_tests_walk() -> None:
    walked = set(itertools.product(SessionState, ACTS))
    walked |= {(SessionState.OPENING, SessionEvent.OPENED), (SessionState.OPENING, SessionEvent.OPENING_FAILED)}
    walked |= {(SessionState.ACCEPTED, SessionEvent.MADE), (SessionState.CANCELLED, SessionEvent.MADE)}
    walked |= {
        (state, SessionEvent.OPENING_FAILED) for state in (SessionState.DRAINING, SessionState.DRAINING_TO_LINGER)
    }
    walked.add((SessionState.DRAINING_TO_LINGER, SessionEvent.LINGER))
    assert {(state, event) for state, row in TRANSITIONS.items() for event in row} <= walked
    assert set(TRANSITIONS) == set(SessionState)


def test_every_state_is_reached_and_ends_and_none_is_entered_again() -> None:
    after: dict[SessionState, set[SessionState]] = {state: set(row.values()) for state, row in TRANSITIONS.items()}
    for _ in SessionState:
        for state, later in after.items():
            after[state] = later.union(*(after[each] for each in later))
    assert after[SessionState.ACCEPTED] == set(SessionState) - {SessionState.ACCEPTED}
    assert all(SessionState.LOST in later for state, later in after.items() if state is not SessionState.LOST)
    assert all(state not in later for state, later in after.items())


def test_a_connection_does_not_resume_an_ended_activity() -> None:
    for state, row in TRANSITIONS.items():
        for then in row.values():
            if state in HAS_CONVERSATION:
                assert then in HAS_CONVERSATION or then in (SessionState.LOST, SessionState.ABORTED)
                assert state in TAKES_REQUESTS or then not in TAKES_REQUESTS
            if state in HAS_ENDED_INPUT:
                assert then in HAS_ENDED_INPUT or then is SessionState.LOST


@pytest.mark.parametrize("released", list(itertools.permutations(ReadHold)))
def test_reading_goes_on_when_the_last_reason_to_hold_it_has_gone(released: tuple[ReadHold, ...]) -> None:
    async def main() -> None:
        peer = Peer()
        peer.session.throttle_reading(500)
        peer.session.hold_reading()
        for reason in released:
            await peer.settle()
            assert not peer.pipe.reads
            if reason is ReadHold.FRONT_END:
                peer.session.release_reading()
            else:
                peer.time.step(500)
        await peer.settle()
        assert peer.pipe.reads
        peer.say("now a")
        assert await peer.listen() == ["a"]

    run(main)
